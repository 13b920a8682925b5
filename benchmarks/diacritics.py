"""Word accuracy of restored diacritics on held-out text, beside two ways that need no model.

    python benchmarks/diacritics.py --corpus /data/ro --out /tmp/proof

The corpus is a folder of train*.jsonl and validation*.jsonl with a column `text`. The script makes
a vocabulary from a part of it, with diacritics and without, pretrains a tiny T5 (4 and 2 layers,
width 128) on it by span corruption, and fine-tunes it to restore diacritics. It then restores the
first records of the validation split: freely, restricted to diacritics, and restricted to the known
forms of known words. The ways without a model are the text without diacritics, and each word's most
frequent form in the training split, which also defines the known forms. Finished steps in --out are
not repeated. The embedding gives the logits, as in T5 1.0: most of a restored text is a copy, which
is then learned once and not for each piece.
"""

import argparse
import collections
import itertools
import json
import pathlib
import resource
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import abilities  # noqa: E402
from tasks.diacritics.constraint import WORD  # noqa: E402
from tasks.diacritics.letters import alphabet  # noqa: E402
from tasks.diacritics.metrics import frequent, frequent_forms, scores  # noqa: E402
from tasks.text.normalize import normalize  # noqa: E402

TASKS = """
from tasks import corpora, diacritics
from tasks.rows import Rows
from tasks.sources import CorpusSource

corpus, vocabulary = CorpusSource({corpus!r}), {out!r} + "/proof.model"
lengths = {lengths}
corpora.add("proof_pretrain", corpus, vocabulary, cedilla=True)
diacritics.add("proof_diacritics", corpus, vocabulary, lengths=lengths)
held_out = Rows(files={{"validation": {out!r} + "/held_out.jsonl"}})
diacritics.add("proof_held_out", held_out, vocabulary, lengths=lengths)
"""
VOCABULARY_DOCUMENTS = 5500
VOCABULARY_SIZE = 2048
LENGTHS = {"inputs": 64, "targets": 64}  # tokens of a piece
STEADY_STEPS = 6000  # of fine-tuning; then the learning rate falls to zero
LEAST_SHARE = 0.1  # of a word's occurrences; a rarer form is a misprint, or a bad bet
SHOWN = ("word_accuracy", "letter_accuracy", "ambiguous_accuracy", "precision", "recall", "f1")
SHOWN += ("sentence_accuracy", "changed_letters")


def records(corpus: pathlib.Path, split: str):
    """Return the normalized texts of a split."""
    for path in sorted(corpus.glob(f"{split}*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield normalize(json.loads(line)["text"], cedilla=True)


def call(out: pathlib.Path, module: str, *flags: str) -> None:
    """Run a module of the project, and print how long it took."""
    begin, begun = time.monotonic(), core_seconds()
    abilities.call(out, module, *flags)
    wall, cores = time.monotonic() - begin, core_seconds() - begun
    print(f"{module}: {wall:.0f} s, {cores / 60:.1f} core-minutes", flush=True)


def core_seconds() -> float:
    """Return the CPU seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def prepare(corpus: pathlib.Path, out: pathlib.Path, held_out: int) -> None:
    """Return the vocabulary, the tasks' module, and the records to measure."""
    out.mkdir(parents=True, exist_ok=True)
    tasks = TASKS.format(corpus=str(corpus), out=str(out), lengths=LENGTHS)
    (out / "proof_tasks.py").write_text(tasks)
    texts = itertools.islice(records(corpus, "validation"), held_out)
    write_records(out / "held_out.jsonl", texts)
    if not (out / "proof.model").exists():
        texts = itertools.islice(records(corpus, "train"), 0, 2 * VOCABULARY_DOCUMENTS, 2)
        both = (each for text in texts for each in (text, alphabet("ro").bare(text)))
        write_records(out / "text.jsonl", both)
        flags = ["--corpus", str(out / "text.jsonl"), "--size", str(VOCABULARY_SIZE)]
        flags += ["--cedilla"]
        call(out, "vocabulary.train", *flags, "--out", str(out / "proof.model"))


def write_records(path: pathlib.Path, texts) -> None:
    """Write JSON lines with a column `text`."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def known_words(texts) -> list[str]:
    """Return the word forms of texts in lower case, without misprints."""
    counts = collections.Counter(word.lower() for text in texts for word in WORD.findall(text))
    bare, sums = alphabet("ro").bare, collections.Counter()
    for word, count in counts.items():
        sums[bare(word)] += count
    return sorted(word for word, n in counts.items() if n >= LEAST_SHARE * sums[bare(word)])


def settings(out: pathlib.Path, task: str, **macros) -> list[str]:
    """Return the gin flags of all runs."""
    values = {
        "MIXTURE_OR_TASK_MODULE": "proof_tasks",
        "MIXTURE_OR_TASK_NAME": task,
        "seqio.SentencePieceVocabulary.sentencepiece_model_file": str(out / "proof.model"),
        "network.T5Config.vocab_size": VOCABULARY_SIZE,
        "network.T5Config.num_decoder_layers": 2,
        "network.T5Config.logits_via_embedding": True,
        **macros,
    }
    return abilities.bound(values)


def train(out: pathlib.Path, pretrain_steps: int, steps: int) -> None:
    """Run or resume pretraining and fine-tuning."""
    scheduler = "utils.create_learning_rate_scheduler"
    if not (out / f"pretrained/checkpoint_{pretrain_steps}").exists():
        macros = {"MODEL_DIR": str(out / "pretrained"), "TRAIN_STEPS": pretrain_steps}
        macros |= {"EVAL_PERIOD": 500, "utils.SaveCheckpointConfig.period": 500}
        macros |= {"EXPECTED_LOSS": None}
        flags = settings(out, "proof_pretrain", **macros)
        call(out, "t5x.train", "--gin_file=gin/ro_t5x_tiny.gin", *flags)
    rate = {"factors": "constant * linear_decay_to_zero", "base_learning_rate": 0.02}
    rate |= {"warmup_steps": min(STEADY_STEPS, steps - 1), "total_steps": steps}
    rate |= {"step_offset": pretrain_steps}
    macros = {f"{scheduler}.{name}": value for name, value in rate.items()}
    macros |= {"MODEL_DIR": str(out / "finetuned"), "TRAIN_STEPS": pretrain_steps + steps}
    macros |= {"BATCH_SIZE": 8, "EVAL_PERIOD": 6000, "utils.SaveCheckpointConfig.period": 1000}
    macros |= {"TASK_FEATURE_LENGTHS": LENGTHS}
    macros |= {"KEEP_BEST": None, "BEST_METRIC": None}  # the last is measured
    macros |= {"INITIAL_CHECKPOINT_PATH": f"{out}/pretrained/checkpoint_{pretrain_steps}"}
    flags = settings(out, "proof_diacritics", **macros)
    call(out, "t5x.train", "--gin_file=gin/ro_diacritics_tiny.gin", *flags)
    # A run that was stopped by hand ends well too.
    if not (out / f"finetuned/checkpoint_{pretrain_steps + steps}").exists():
        sys.exit("Fine-tuning was stopped: start again to resume it, or set --measure_only.")


def restore(out: pathlib.Path, name: str, *flags: str) -> list[tuple[str, str]]:
    """Return pairs of the true and the restored text of each piece."""
    macros = {"CHECKPOINT_PATH": str(out / "finetuned"), "INFER_OUTPUT_DIR": str(out / name)}
    macros |= {"TASK_FEATURE_LENGTHS": LENGTHS, "utils.RestoreCheckpointConfig.mode": "latest"}
    flags = (*flags, "--trusted_modules=proof_tasks", *settings(out, "proof_held_out", **macros))
    call(out, "t5x.infer", *abilities.INFERENCE, *flags)
    return abilities.predictions(out / name / "proof_held_out-predict.jsonl")


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--pretrain_steps", type=int, default=500)
    parser.add_argument("--steps", type=int, default=40000)
    parser.add_argument("--held_out", type=int, default=100, help="records that are measured")
    parser.add_argument(
        "--measure_only", action="store_true", help="the newest checkpoint as it is"
    )
    values = parser.parse_args()
    out = values.out.resolve()
    prepare(values.corpus.resolve(), out, values.held_out)
    if not values.measure_only:
        train(out, values.pretrain_steps, values.steps)
    constrained = abilities.CONSTRAINED
    (out / "words.txt").write_text("\n".join(known_words(records(values.corpus, "train"))))
    words = f"--gin.tasks.diacritics.only_diacritics.words={str(out / 'words.txt')!r}"
    found = {"fine-tuned": restore(out, "free")}
    found["fine-tuned, diacritics only"] = restore(out, "constrained", *constrained)
    found["fine-tuned, known words"] = restore(out, "words", *constrained, words)
    targets = [target for target, _ in found["fine-tuned"]]
    bare = [alphabet("ro").bare(target) for target in targets]
    table = frequent_forms(records(values.corpus, "train"), "ro")
    plain = {"the bare text": bare, "most frequent form": frequent(bare, table)}
    outputs = plain | {name: [text for _, text in pairs] for name, pairs in found.items()}
    words = sum(len(target.split()) for target in targets)
    print(f"\n{len(targets):,} pieces, {words:,} words between blanks\n")
    print("|", *(f"{name} |" for name in ("", *SHOWN)))
    print("|", "---|" * (len(SHOWN) + 1), sep="")
    for name, texts in outputs.items():
        row = scores(targets, texts, "ro")
        print("|", *(f"{cell} |" for cell in (name, *(f"{100 * row[m]:.2f}" for m in SHOWN))))


if __name__ == "__main__":
    main()
