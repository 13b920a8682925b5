"""What a T5 of 8 million parameters learns from novels, beside an n-gram model and no training.

    python benchmarks/abilities.py run --corpus /data/eltec_ro --work /tmp/abilities
    python benchmarks/abilities.py show --png docs/abilities.png

The corpus is a folder of *.jsonl with columns `novel` and `text`; every twelfth novel is held out,
all of it. `run` trains a vocabulary of 8,192 pieces and a T5 1.1 by span corruption, with the
project's own trainer; restores diacritics after fine-tuning from its last checkpoint and from none;
and measures every checkpoint, the first before any training, by `python -m evaluation`. The n-gram
model (benchmarks/ngram.py) answers the same questions.

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
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tasks.text.normalize import normalize  # noqa: E402

HELD_OUT = 12  # one of so many novels
VOCABULARY_SIZE = 8192
LENGTHS = {"inputs": 128, "targets": 29}  # 145 tokens of text: density 0.15, spans of 3
BATCH, RATE, WARMUP, PERIOD = 16, 0.04, 100, 200
COOLDOWN = 0.3  # of the steps; before it, --steps may be changed
MODEL = {
    "vocab_size": VOCABULARY_SIZE, "emb_dim": 256, "num_heads": 4, "head_dim": 64, "mlp_dim": 384,
    "num_encoder_layers": 4, "num_decoder_layers": 2,
}  # fmt: skip
TASKS = """
from tasks import corpora, diacritics
from tasks.sources import CorpusSource

corpus, vocabulary = CorpusSource({work!r}), {work!r} + "/novels.model"
corpora.add("novels", corpus, vocabulary, cedilla=True)
"""


# The data.


def prepare(corpus: pathlib.Path, work: pathlib.Path) -> None:
    """Write the novels to train on and the held-out ones, the tasks' module and the vocabulary."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "novels_tasks.py").write_text(TASKS.format(work=str(work)))
    if not (work / "train.jsonl").exists():
        train, held_out = split(read(corpus))
        write(work / "validation.jsonl", held_out)
        write(work / "train.jsonl", train)
    if not (work / "novels.model").exists():
        flags = ["--corpus", str(work / "train.jsonl"), "--size", str(VOCABULARY_SIZE)]
        flags += ["--max_documents", "6000", "--out", str(work / "novels.model")]
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


def settings(work: pathlib.Path, task: str, folder: str, steps: int, **others) -> list[str]:
    """Return the gin flags of a training run up to a step."""
    values = {
        "MIXTURE_OR_TASK_MODULE": "novels_tasks",
        "MIXTURE_OR_TASK_NAME": task,
        "MODEL_DIR": str(work / folder),
        "TRAIN_STEPS": steps,
        "BATCH_SIZE": BATCH,
        "DROPOUT_RATE": 0.0,
        "seqio.SentencePieceVocabulary.sentencepiece_model_file": str(work / "novels.model"),
        **{f"network.T5Config.{name}": value for name, value in MODEL.items()},
        **others,
    }
    return [f"--gin.{name}={value!r}" for name, value in values.items()]


def schedule(rate: float, steps: int, **others) -> dict:
    """Return the settings of a rate that rises, stays, and falls to zero at its end."""
    found = {"factors": "constant * linear_warmup * linear_cooldown", "base_learning_rate": rate}
    found |= {"warmup_steps": WARMUP, "cooldown_steps": int(COOLDOWN * steps)}
    found |= {"total_steps": steps, **others}
    return {f"utils.create_learning_rate_scheduler.{name}": found[name] for name in found}


def pretrain(work: pathlib.Path, steps: int) -> None:
    """Train the model, or resume; the first checkpoint is before any change, since its rate is 0.

    Raises:
      ValueError: the steps are no multiple of the period.
    """
    if steps % PERIOD:
        raise ValueError(f"--steps is {steps}, but must be a multiple of {PERIOD}")
    flags = settings(
        work, "novels", "pretrained", steps,
        **schedule(RATE, steps),
        **{
            "TASK_FEATURE_LENGTHS": LENGTHS, "EVAL_PERIOD": PERIOD, "EVAL_STEPS": 20,
            "EXPECTED_LOSS": None, "utils.SaveCheckpointConfig.period": PERIOD,
            "utils.SaveCheckpointConfig.keep": None,
            "utils.SaveCheckpointConfig.checkpoint_steps": [1],
        },
    )  # fmt: skip
    call(work, "t5x.train", "--gin_file=gin/ro_t5x_tiny.gin", *flags)


def main() -> None:
    """Run the stages that are missing, or show the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, help="folder of the data and the models")
    parser.add_argument("--steps", type=int, default=6000, help="of pretraining")
    values = parser.parse_args()
    work = values.work.resolve()
    prepare(values.corpus.resolve(), work)
    pretrain(work, values.steps)


if __name__ == "__main__":
    main()
