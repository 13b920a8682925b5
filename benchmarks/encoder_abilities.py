"""Words that a small ModernBERT fills in after an hour on novels, beside n-gram models.

    python benchmarks/encoder_abilities.py run --corpus /data/eltec_ro --work /tmp/novels
    python benchmarks/encoder_abilities.py show

The corpus, its split and its passages are those of `benchmarks/abilities.py`. `run` trains a
WordPiece vocabulary and a ModernBERT of 1.1 million parameters with the project's own trainer, and
measures its checkpoints, the first before any training, by `python -m evaluation`: of each passage
of novels that are held out, some words of letters are hidden, one at a time. A word counts if all
of its pieces are the most probable. Masks tell how many pieces the word has, so the n-gram models
choose among words of as many pieces, too.

Each stage that is finished is in --work or a line of --results, and is not repeated; training that
was interrupted resumes. `show` reads the results alone.
"""

import functools
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import abilities  # noqa: E402

VOCABULARY_SIZE = 4096
LENGTH, BATCH, RATE, WARMUP, PERIOD = 128, 16, 0.008, 200, 500
MODEL = {
    "vocab_size": VOCABULARY_SIZE, "emb_dim": 128, "num_heads": 4, "num_layers": 4,
    "mlp_dim": 192, "max_length": LENGTH, "dtype": "float32",
}  # fmt: skip
PASSAGES, MAX_CHARS = 600, 250  # so that a passage has at most LENGTH tokens
RESULTS = ROOT / "benchmarks" / "results" / "encoder_abilities.jsonl"
ENCODER = "ModernBERT"
# Words that each model sees: the order of its n-grams, and whether those behind count.
NGRAMS = {
    "unigram": (1, False),
    "trigram, the two words before": (3, False),
    "trigram, two words on both sides": (3, True),
}
SHOWN = {
    "filled_in": "words filled in", "filled_in_1_100": "of the 100 most frequent",
    "filled_in_101_1000": "of the next 900", "filled_in_1001_on": "of the rest",
}  # fmt: skip
TASKS = """
from tasks import corpora
from tasks.sources import CorpusSource

corpora.add("novels_masked", CorpusSource({work!r}), {work!r} + "/pieces", "modernbert",
            cedilla=True)
"""


def prepare(corpus: pathlib.Path, work: pathlib.Path) -> None:
    """Write the novels to train on and the held-out ones, the task's module and the vocabulary."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "novels_masked.py").write_text(TASKS.format(work=str(work)))
    if not (work / "train.jsonl").exists():
        train, held_out = abilities.split(abilities.read(corpus))
        abilities.write(work / "validation.jsonl", held_out)
        abilities.write(work / "train.jsonl", train)
    if not (work / "pieces").exists():
        flags = ["--kind", "wordpiece", "--corpus", str(work / "train.jsonl")]
        flags += ["--size", str(VOCABULARY_SIZE), "--max_documents", "6000", "--cedilla"]
        abilities.call(work, "vocabulary.train", *flags, "--out", str(work / "pieces"))


def pretrain(work: pathlib.Path, steps: int) -> None:
    """Train the model, or resume; the first checkpoint is before any change, since its rate is 0.

    Raises:
      ValueError: the steps are no multiple of the period.
    """
    if steps % PERIOD:
        raise ValueError(f"--steps is {steps}, but must be a multiple of {PERIOD}")
    rate = {
        "factors": "constant * linear_warmup * linear_decay_to_zero", "base_learning_rate": RATE,
        "warmup_steps": WARMUP, "total_steps": steps,
    }  # fmt: skip
    values = {
        "MIXTURE_OR_TASK_MODULE": "novels_masked", "MIXTURE_OR_TASK_NAME": "novels_masked",
        "TASK_FEATURE_LENGTHS": {"inputs": LENGTH, "targets": LENGTH}, "BATCH_SIZE": BATCH,
        "MODEL_DIR": str(work / "pretrained"), "TRAIN_STEPS": steps,
        "VOCABULARY_FILE": str(work / "pieces"), "EVAL_PERIOD": PERIOD, "EVAL_STEPS": 40,
        "utils.SaveCheckpointConfig.period": PERIOD, "utils.SaveCheckpointConfig.keep": None,
        "utils.SaveCheckpointConfig.checkpoint_steps": [1],
        **{f"network.ModernBertConfig.{name}": value for name, value in MODEL.items()},
        **{f"utils.create_learning_rate_scheduler.{k}": value for k, value in rate.items()},
    }  # fmt: skip
    flags = ["--gin_file=gin/ro_modernbert_base.gin", "--gin.OPTIMIZER=@optimizers.muon()"]
    flags += ["--gin.optimizers.muon.matrix_rate=1.0"]
    abilities.call(work, "t5x.train", *abilities.bound(values), *flags)


def measure_checkpoints(work: pathlib.Path, steps: int) -> Iterator[dict]:
    """Yield the results of the untrained, each second and the last checkpoint, by `evaluation`."""
    measured = sorted({1, *range(2 * PERIOD, steps, 2 * PERIOD), steps})
    paths = [f"{work}/pretrained/checkpoint_{step}" for step in measured]
    out = work / "evaluation.json"
    flags = ["--language", "ro", "--text", str(work / "validation.jsonl"), "--out", str(out)]
    flags += ["--passages", str(PASSAGES), "--max_chars", str(MAX_CHARS)]
    abilities.call(work, "evaluation", *paths, *flags, "--without", "text", "pairs")
    for model in json.loads(out.read_text())["models"]:
        kept = {name: model[name] for name in ("step", "parameters", "measures")}
        yield {"model": ENCODER, **kept, "version": model["version"], "date": model["date"]}


def measure_ngrams(work: pathlib.Path, name: str) -> dict:
    """Return the result of an n-gram model on the hidden words of `evaluation`."""
    from benchmarks.ngrams.guesser import WordGuesser
    from evaluation import hidden_text, measures
    from tasks.tokenizer_vocabulary import TokenizerVocabulary

    train, held_out = (abilities.texts(work / f"{part}.jsonl") for part in ("train", "validation"))
    passages = list(hidden_text.cut_passages(held_out, PASSAGES, MAX_CHARS))
    vocabulary = TokenizerVocabulary(str(work / "pieces"))
    pieces = functools.cache(lambda word: len(vocabulary.encode_texts([word])[0]))
    order, behind = NGRAMS[name]
    guesser = WordGuesser(train, order, behind, pieces)
    counts = measures.count_words(passages)
    return {"model": name, "measures": measures.filled_in_words(passages, counts, guesser)}


def run(work: pathlib.Path, results: pathlib.Path, steps: int) -> None:
    """Run the stages whose results are missing."""
    known = abilities.read_results(results)
    models = {line["model"] for line in known}
    pretrain(work, steps)
    for name in NGRAMS:
        if name not in models:
            abilities.append(results, measure_ngrams(work, name))
    if steps not in {line["step"] for line in known if line["model"] == ENCODER}:
        for line in measure_checkpoints(work, steps):
            abilities.append(results, line)


def table(results: Sequence[dict]) -> Iterator[str]:
    """Yield the lines of the table: the n-gram models, then the checkpoints."""
    rows = {line["model"]: line for line in results if line["model"] in NGRAMS}
    trained = (line for line in results if line["model"] == ENCODER)
    for line in sorted(trained, key=lambda line: line["step"]):
        rows[f"{ENCODER}, {line['step']:,} steps"] = line
    yield from abilities.figures(rows, SHOWN)


def main() -> None:
    """Run the stages that are missing, or show the results."""
    parser = abilities.parser_of(__doc__, "show", RESULTS)
    parser.add_argument("--steps", type=int, default=8000, help="of training")
    values = abilities.parse(parser)
    if values.action == "run":
        prepare(values.corpus, values.work)
        run(values.work, values.results, values.steps)
    print("\n".join(table(abilities.read_results(values.results))))


if __name__ == "__main__":
    main()
