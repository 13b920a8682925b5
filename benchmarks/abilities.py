"""What a T5 of 8 million parameters learns from novels, beside an n-gram model and no training.

    python benchmarks/abilities.py run --corpus /data/eltec_ro --work /tmp/abilities
    python benchmarks/abilities.py show --png docs/abilities.png

The corpus is a folder of *.jsonl with columns `novel` and `text`; every twelfth novel is held out,
all of it. `run` trains a vocabulary of 8,192 pieces and a T5 1.1 by span corruption, with the
project's own trainer: --steps as the tiny recipes do, then --dense_steps with half of the text
hidden, which asks for three times as many tokens at the same cost, and by Muon. It restores
diacritics after fine-tuning from the last checkpoint and from none, and measures checkpoints, the
first before any training, by `python -m evaluation`. The n-gram model (benchmarks/ngrams) answers
the same questions.

Each stage that is finished is in --work or a line of --results, and is not repeated; training that
was interrupted resumes. `show` reads the results alone.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tasks.diacritics.letters import alphabet  # noqa: E402
from tasks.diacritics.metrics import frequent, frequent_forms, scores  # noqa: E402
from tasks.text.normalize import normalize  # noqa: E402

HELD_OUT = 12  # one of so many novels
VOCABULARY_SIZE = 8192
LENGTHS = {"inputs": 128, "targets": 29}  # 141 tokens of text: density 0.15, spans of 3
BATCH, RATE, WARMUP, PERIOD = 16, 0.04, 100, 200
HALVED, COOLDOWN = 4 / 9, 0.3  # of the steps
# Then denser noise, larger batches and Muon, whose steps drown in the noise of small ones.
DENSE_LENGTHS = {"inputs": 81, "targets": 81}  # 128 tokens of text: density 0.5, spans of 4
DENSE_BATCH, DENSE_RATE, DENSE_WARMUP, DENSE_PERIOD = 32, 0.015, 20, 50
MODEL = {
    "vocab_size": VOCABULARY_SIZE, "emb_dim": 256, "num_heads": 4, "head_dim": 64, "mlp_dim": 384,
    "num_encoder_layers": 4, "num_decoder_layers": 2,
}  # fmt: skip
FINETUNED = {"inputs": 32, "targets": 32}  # short, so that copying is learned soon
FINETUNE_RATE = 0.02
INFERENCE = (
    "--gin_file=gin/ro_diacritics_tiny.gin", "--gin_file=t5x/configs/runs/infer.gin",
    "--gin.MIXTURE_OR_TASK_SPLIT='validation'", "--gin.BATCH_SIZE=64",
)  # fmt: skip
CONSTRAINED = [
    "--gin.infer_script.infer.constraint=@tasks.diacritics.only_diacritics()",
    "--gin.tasks.diacritics.only_diacritics.task=%MIXTURE_OR_TASK_NAME",
]
# Of the held-out novels; passages are about as long as what was trained on.
PASSAGES, PAIRS, MAX_CHARS = 300, 2000, 500
RESTORED = 60  # records of the held-out novels
RESULTS = ROOT / "benchmarks" / "results" / "abilities.jsonl"
T5, NGRAMS, PLAIN, FINETUNED_T5 = "T5", "n-grams", "no model", "T5, fine-tuned"
SHOWN = {
    "bits_per_byte": "bits a byte", "filled_in": "words filled in",
    "filled_in_1_100": "of the 100 most frequent", "filled_in_101_1000": "of the next 900",
    "filled_in_1001_on": "of the rest", "minimal_pairs_agreement": "agreement",
    "minimal_pairs_word_order": "word order", "minimal_pairs_diacritics": "diacritics",
}  # fmt: skip
PICTURES = {
    "bits a byte of hidden text": {"bits_per_byte": ""},
    "words filled in, %": {
        "filled_in": "all", "filled_in_1_100": "the 100 most frequent",
    },
    "minimal pairs, %": {
        name: SHOWN[name] for name in SHOWN if name.startswith("minimal_pairs")
    },
}  # fmt: skip
TASKS = """
from tasks import corpora, diacritics
from tasks.objectives.span_corruption import SpanNoise
from tasks.rows import Rows
from tasks.sources import CorpusSource

corpus, vocabulary = CorpusSource({work!r}), {work!r} + "/novels.model"
corpora.add("novels", corpus, vocabulary, cedilla=True)
corpora.add("novels_dense", corpus, vocabulary, SpanNoise(0.5, 4.0), cedilla=True)
diacritics.add("novels_diacritics", corpus, vocabulary, lengths={lengths})
held_out = Rows(files={{"validation": {work!r} + "/restored.jsonl"}})
diacritics.add("novels_restored", held_out, vocabulary, lengths={lengths})
"""


# The data.


def prepare(corpus: pathlib.Path, work: pathlib.Path) -> None:
    """Write the novels to train on and the held-out ones, the tasks' module and the vocabulary."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "novels_tasks.py").write_text(TASKS.format(work=str(work), lengths=FINETUNED))
    if not (work / "train.jsonl").exists():
        train, held_out = split(read(corpus))
        write(work / "validation.jsonl", held_out)
        write(work / "restored.jsonl", held_out[-RESTORED:])
        write(work / "train.jsonl", train)
    if not (work / "novels.model").exists():
        flags = ["--corpus", str(work / "train.jsonl"), "--size", str(VOCABULARY_SIZE)]
        flags += ["--max_documents", "6000", "--cedilla", "--out", str(work / "novels.model")]
        call(work, "vocabulary.train", *flags)


def read(corpus: pathlib.Path) -> Iterator[dict]:
    """Yield the records of a corpus."""
    for path in sorted(corpus.glob("*.jsonl")):
        with open(path, encoding="utf-8") as file:
            yield from map(json.loads, file)


def split(records: Iterable[dict]) -> tuple[list[dict], list[dict]]:
    """Return the records of the novels to train on and of those held out, both shuffled."""
    parts: tuple[list[dict], list[dict]] = ([], [])
    records = list(records)
    novels = sorted({record["novel"] for record in records})
    held_out = {*novels[HELD_OUT - 1 :: HELD_OUT]}
    for record in records:
        parts[record["novel"] in held_out].append(record)
    for part in parts:
        random.Random(0).shuffle(part)
    return parts


def write(path: pathlib.Path, records: Iterable[dict]) -> None:
    """Write JSON lines, normalized as for training."""
    lines = ({**each, "text": normalize(each["text"], cedilla=True)} for each in records)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


# The model.


def call(work: pathlib.Path, module: str, *flags: str) -> None:
    """Run a module of the project."""
    paths = [str(ROOT), str(work), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "-m", module, *flags], check=True, cwd=ROOT, env=env)


def settings(work: pathlib.Path, task: str, **others) -> list[str]:
    """Return the gin flags of the model and a task."""
    values = {
        "MIXTURE_OR_TASK_MODULE": "novels_tasks",
        "MIXTURE_OR_TASK_NAME": task,
        "seqio.SentencePieceVocabulary.sentencepiece_model_file": str(work / "novels.model"),
        **{f"network.T5Config.{name}": value for name, value in MODEL.items()},
        **others,
    }
    return bound(values)


def bound(values: Mapping[str, object]) -> list[str]:
    """Return values by their names in gin as flags."""
    return [f"--gin.{name}={value!r}" for name, value in values.items()]


def training(folder: pathlib.Path, steps: int, batch: int = BATCH) -> dict:
    """Return the settings of a training run up to a step."""
    found = {"MODEL_DIR": str(folder), "TRAIN_STEPS": steps}
    return found | {"BATCH_SIZE": batch, "DROPOUT_RATE": 0.0}


def checkpoints(period: int) -> dict:
    """Return the settings that save and validate after each `period` steps, and keep all."""
    return {
        "EVAL_PERIOD": period, "EVAL_STEPS": 20, "EXPECTED_LOSS": None,
        "utils.SaveCheckpointConfig.period": period, "utils.SaveCheckpointConfig.keep": None,
    }  # fmt: skip


def schedule(
    rate: float, steps: int, start: int = 0, warmup: int = WARMUP, halved: bool = True
) -> dict:
    """Return settings of a rate that rises, may halve twice, and falls to zero at the end."""
    found = {"factors": "constant * linear_warmup * linear_cooldown"}
    found |= {"base_learning_rate": rate, "warmup_steps": warmup, "step_offset": start}
    if halved:
        found["factors"] += " * decay_every"
        found |= {"decay_factor": 0.5, "steps_per_decay": int(HALVED * steps)}
    found |= {"cooldown_steps": int(COOLDOWN * steps), "total_steps": steps}
    return {f"utils.create_learning_rate_scheduler.{name}": found[name] for name in found}


def pretrain(work: pathlib.Path, steps: int) -> None:
    """Train the model, or resume; the first checkpoint is before any change, since its rate is 0.

    Raises:
      ValueError: the steps are no multiple of the period.
    """
    if steps % PERIOD:
        raise ValueError(f"--steps is {steps}, but must be a multiple of {PERIOD}")
    flags = settings(
        work, "novels", **training(work / "pretrained", steps), **schedule(RATE, steps),
        **checkpoints(PERIOD),
        **{"TASK_FEATURE_LENGTHS": LENGTHS, "utils.SaveCheckpointConfig.checkpoint_steps": [1]},
    )  # fmt: skip
    call(work, "t5x.train", "--gin_file=gin/ro_t5x_tiny.gin", *flags)


def pretrain_densely(work: pathlib.Path, start: int, steps: int) -> None:
    """Train from a checkpoint of `pretrain`, or resume, until `steps` later.

    The rate does not depend on `steps` before it falls, so a run that is interrupted may end sooner
    or later than was asked for first.

    Raises:
      ValueError: the last step is no multiple of the period.
    """
    end = start + steps
    if end % DENSE_PERIOD:
        raise ValueError(
            f"--steps and --dense_steps are {end} in all, but must be a multiple of {DENSE_PERIOD}"
        )
    flags = settings(
        work, "novels_dense", **training(work / "dense", end, DENSE_BATCH),
        **schedule(DENSE_RATE, steps, start, DENSE_WARMUP, halved=False),
        **checkpoints(DENSE_PERIOD),
        **{
            "TASK_FEATURE_LENGTHS": DENSE_LENGTHS,
            "utils.RestoreCheckpointConfig.path": f"{work}/pretrained/checkpoint_{start}",
            "utils.RestoreCheckpointConfig.mode": "specific",
        },
    )  # fmt: skip
    flags += ["--gin.OPTIMIZER=@optimizers.muon()", "--gin.optimizers.muon.matrix_rate=1.0"]
    call(work, "t5x.train", "--gin_file=gin/ro_t5x_tiny.gin", *flags)


def finetune(work: pathlib.Path, checkpoint: pathlib.Path, steps: int) -> str:
    """Train from a checkpoint to restore diacritics; return the last checkpoint."""
    start = step_of(checkpoint)
    end, folder = start + steps, f"restores_{start}"
    flags = settings(
        work, "novels_diacritics", **training(work / folder, end),
        **schedule(FINETUNE_RATE, steps, start),
        **{
            "TASK_FEATURE_LENGTHS": FINETUNED, "EVAL_PERIOD": end, "KEEP_BEST": None,
            "BEST_METRIC": None, "utils.SaveCheckpointConfig.period": end,
            "INITIAL_CHECKPOINT_PATH": str(checkpoint),
        },
    )  # fmt: skip
    call(work, "t5x.train", "--gin_file=gin/ro_diacritics_tiny.gin", *flags)
    return f"{work}/{folder}/checkpoint_{end}"


def restored(work: pathlib.Path, checkpoint: str, constrained: bool) -> list[tuple[str, str]]:
    """Return pairs of the true and the restored text of each piece of the held-out records.

    `constrained` allows outputs that differ from the input in diacritics alone.
    """
    out = pathlib.Path(checkpoint).parent / ("constrained" if constrained else "free")
    others = {"CHECKPOINT_PATH": checkpoint, "TASK_FEATURE_LENGTHS": FINETUNED}
    flags = settings(work, "novels_restored", **others, INFER_OUTPUT_DIR=str(out))
    flags += CONSTRAINED if constrained else []
    call(work, "t5x.infer", *INFERENCE, *flags, "--trusted_modules=novels_tasks")
    return predictions(out / "novels_restored-predict.jsonl")


def predictions(path: pathlib.Path) -> list[tuple[str, str]]:
    """Return pairs of the true and the restored text of each line of predictions."""
    found = map(json.loads, path.read_text().splitlines())
    return [(each["inputs"]["targets_pretokenized"], each["prediction"]) for each in found]


# What is measured.


def texts(path: pathlib.Path) -> list[str]:
    """Return the texts of JSON lines."""
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def step_of(checkpoint: pathlib.Path) -> int:
    """Return the step of a checkpoint."""
    return int(checkpoint.name.removeprefix("checkpoint_"))


def measured(work: pathlib.Path, steps: int, dense_steps: int) -> list[pathlib.Path]:
    """Return the checkpoints to measure: the untrained, some, and the last of each phase."""
    first = sorted({1, *range(2 * PERIOD, steps, 2 * PERIOD), steps})
    found = [work / "pretrained" / f"checkpoint_{step}" for step in first]
    end = steps + dense_steps
    middle = steps + dense_steps // (2 * DENSE_PERIOD) * DENSE_PERIOD
    dense = sorted({middle, end} - {steps})
    return found + [work / "dense" / f"checkpoint_{step}" for step in dense]


def measure_checkpoints(work: pathlib.Path, paths: Sequence[pathlib.Path]) -> Iterator[dict]:
    """Yield the results of checkpoints, by `evaluation`."""
    out = work / "evaluation.json"
    flags = ["--language", "ro", "--text", str(work / "validation.jsonl"), "--pairs", "made"]
    flags += ["--passages", str(PASSAGES), "--max_chars", str(MAX_CHARS), "--out", str(out)]
    call(work, "evaluation", *map(str, paths), *flags)
    steps = {step_of(path) for path in paths}
    for model in json.loads(out.read_text())["models"]:
        if model["step"] in steps:
            names = ("step", "parameters", "bytes_per_token", "measures", "version", "date")
            yield {"model": T5, **{name: model[name] for name in names}}


def measure_ngrams(work: pathlib.Path) -> dict:
    """Return the results of the n-gram models on the passages and pairs of `evaluation`."""
    from benchmarks.ngrams.guesser import ByteGuesser, WordGuesser, restore
    from evaluation import measures, minimal_pairs
    from evaluation.hidden_text import cut_passages

    train, held_out = texts(work / "train.jsonl"), texts(work / "validation.jsonl")
    passages = list(cut_passages(held_out, PASSAGES, MAX_CHARS))
    pairs = list(minimal_pairs.make(passages, "ro", seed=0))[:PAIRS]
    by_bytes = ByteGuesser(train)
    found = measures.bits_per_byte(passages, by_bytes)
    found |= measures.preferred_sentences(pairs, by_bytes)
    wanted = texts(work / "restored.jsonl")
    bare = [alphabet("ro").bare(text) for text in wanted]
    outputs = [restore(text, by_bytes.model, "ro") for text in bare]
    del by_bytes  # a gigabyte
    counts = measures.count_words(passages)
    found |= measures.filled_in_words(passages, counts, WordGuesser(train))
    return {"model": NGRAMS, "measures": found, "diacritics": restored_words(wanted, outputs)}


def measure_plain(work: pathlib.Path) -> dict:
    """Return how many words are right without any model, and with each word's usual form."""
    wanted = texts(work / "restored.jsonl")
    bare = [alphabet("ro").bare(text) for text in wanted]
    usual = frequent(bare, frequent_forms(texts(work / "train.jsonl"), "ro"))
    found = {"the bare text": bare, "most frequent form": usual}
    return {"model": PLAIN, "diacritics": {k: restored_words(wanted, v) for k, v in found.items()}}


def restored_words(wanted: Sequence[str], outputs: Sequence[str]) -> float:
    """Return the share of words that are right."""
    return scores(wanted, outputs, "ro")["word_accuracy"]


def measure_finetuned(work: pathlib.Path, checkpoint: pathlib.Path, steps: int) -> dict:
    """Return the words right after fine-tuning from a checkpoint, freely and constrained."""
    tuned = finetune(work, checkpoint, steps)
    found = {}
    for name, constrained in (("free", False), ("diacritics only", True)):
        wanted, outputs = zip(*restored(work, tuned, constrained), strict=True)
        found[name] = restored_words(wanted, outputs)
    start = step_of(checkpoint)
    return {"model": FINETUNED_T5, "start": start, "steps": steps, "diacritics": found}


def run(
    work: pathlib.Path, results: pathlib.Path, steps: int, dense_steps: int, finetune_steps: int
) -> None:
    """Run the stages whose results are missing."""
    known = read_results(results)
    models = {line["model"] for line in known}
    keep = lambda line: append(results, line)
    if NGRAMS not in models:
        keep(measure_ngrams(work))
    if PLAIN not in models:
        keep(measure_plain(work))
    pretrain(work, steps)
    if dense_steps:
        pretrain_densely(work, steps, dense_steps)
    paths = measured(work, steps, dense_steps)
    if not paths[-1].exists():
        sys.exit(f"{paths[-1]} is missing: training was interrupted; start this command again")
    done = {line["step"] for line in known if line["model"] == T5}
    if missing := [path for path in paths if step_of(path) not in done]:
        for line in measure_checkpoints(work, missing):
            keep(line)
    tuned = {line["start"] for line in known if line["model"] == FINETUNED_T5}
    for path in (paths[-1], paths[0]):
        if step_of(path) not in tuned:
            keep(measure_finetuned(work, path, finetune_steps))


def read_results(path: pathlib.Path) -> list[dict]:
    """Return the results, none if there are none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: pathlib.Path, line: dict) -> None:
    """Add a line to the results."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


# What is shown.


def table(results: Sequence[dict]) -> Iterator[str]:
    """Yield the lines of the table: the n-gram models, and the first and last checkpoint."""
    t5 = sorted((line for line in results if line["model"] == T5), key=lambda line: line["step"])
    rows = {f"T5, {line['step']:,} steps": line for line in t5[-1:]}
    rows = {"T5, untrained": t5[0], **rows} if t5 else {}
    rows |= {line["model"]: line for line in results if line["model"] == NGRAMS}
    yield from figures(rows, SHOWN)
    yield ""
    yield "| diacritics restored | words that are right |"
    yield "|---|---:|"
    for line in results:
        found = line.get("diacritics")
        if not found:
            continue
        name = line["model"]
        if name == FINETUNED_T5:
            name += " without pretraining" if line["start"] == 1 else ""
        for way, share in found.items() if isinstance(found, dict) else [("", found)]:
            label = way if name == PLAIN else f"{name}, {way}".rstrip(", ")
            yield f"| {label} | {share:.1%} |"


def figures(rows: Mapping[str, dict], shown: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a table of results by name; `shown` are the headings of measures."""
    yield f"| | {' | '.join(shown.values())} |"
    yield "|---" + "|---:" * len(shown) + "|"
    for name, line in rows.items():
        found = ((measure, line["measures"].get(measure)) for measure in shown)
        cells = [percent_or_bits(*each) if each[1] else "–" for each in found]
        yield f"| {name} | {' | '.join(cells)} |"


def percent_or_bits(name: str, measure: Sequence[float]) -> str:
    """Return a figure with its standard error."""
    value, error, _ = measure
    if name == "bits_per_byte":
        return f"{value:.2f} ± {error:.2f}"
    return f"{100 * value:.1f} ± {100 * error:.1f} %"


def draw(results: Sequence[dict], path: pathlib.Path) -> None:
    """Write a picture: each ability by the steps of pretraining, the n-gram model as a line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    t5 = sorted((line for line in results if line["model"] == T5), key=lambda line: line["step"])
    ngrams = next((line["measures"] for line in results if line["model"] == NGRAMS), {})
    figure, axes = plt.subplots(1, 3, figsize=(10, 3))
    for axis, (title, names) in zip(axes, PICTURES.items(), strict=True):
        for i, (name, label) in enumerate(names.items()):
            points = [(line["step"], line["measures"][name][0]) for line in t5]
            scale = 1 if name == "bits_per_byte" else 100
            steps, values = zip(*points, strict=True)
            axis.plot(steps, [scale * v for v in values], f"C{i}", label=label, marker=".")
            if name in ngrams:
                axis.axhline(scale * ngrams[name][0], color=f"C{i}", linestyle=":")
        axis.set_title(title)
        axis.set_xlabel("steps")
        if len(names) > 1:
            axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=100, metadata={"Software": None})


def parser_of(about: str, shows: str, results: pathlib.Path | None) -> argparse.ArgumentParser:
    """Return the flags that benchmarks in stages share; `shows` is the action that only reads."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("action", choices=("run", shows))
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, help="folder of the data and the models")
    parser.add_argument("--results", type=pathlib.Path, default=results)
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the given flags with absolute paths; `run` needs a corpus and a folder."""
    values = parser.parse_args()
    if values.action == "run":
        if not (values.corpus and values.work):
            parser.error("run needs --corpus and --work")
        values.corpus, values.work = values.corpus.resolve(), values.work.resolve()
    return values


def main() -> None:
    """Run the stages that are missing, or show the results."""
    parser = parser_of(__doc__, "show", RESULTS)
    parser.add_argument("--steps", type=int, default=1800, help="of pretraining")
    parser.add_argument("--dense_steps", type=int, default=300, help="of it afterwards, densely")
    parser.add_argument("--finetune_steps", type=int, default=600)
    parser.add_argument("--png", type=pathlib.Path, help="picture that show writes")
    values = parse(parser)
    if values.action == "run":
        prepare(values.corpus, values.work)
        run(values.work, values.results, values.steps, values.dense_steps, values.finetune_steps)
    results = read_results(values.results)
    print("\n".join(table(results)))
    if values.png:
        draw(results, values.png)


if __name__ == "__main__":
    main()
