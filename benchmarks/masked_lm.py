"""Tokens a second that the masking of encoders makes, beside span corruption, on one core.

    nice -n -10 taskset -c 0 python benchmarks/masked_lm.py --files 'data/ro_mini/train-*.jsonl'

All read the same documents, tokenized ahead and kept in memory, and run without the trainer: from
ids of documents to examples of 512 inputs, several times alternately. Tokens are those of the
documents.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np
import seqio
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tasks import vocabularies  # noqa: E402
from tasks.objectives import registry  # noqa: E402
from tasks.objectives.base import Objective  # noqa: E402
from tasks.sources import CorpusSource  # noqa: E402

WAYS = ("span_corruption", "masked_lm", "bert")
INPUTS = 512


def documents_of(
    name: str, files: str, vocabulary: seqio.Vocabulary
) -> tuple[Objective, dict[str, seqio.Feature], tf.data.Dataset, int]:
    """Return an objective, its features, the tokenized documents in memory, and their tokens."""
    objective = registry.get_objective(name)
    features = objective.features(vocabulary)
    source = CorpusSource(files={"train": files})
    texts = source.get_dataset("train", shuffle=False)
    rows = list(objective.tokenize(texts, features).as_numpy_iterator())
    ragged = {key: tf.ragged.stack([row[key] for row in rows]) for key in rows[0]}
    dataset = tf.data.Dataset.from_tensor_slices(ragged)
    flat = lambda value: value.values if isinstance(value, tf.RaggedTensor) else value
    dataset = dataset.map(lambda x: {key: flat(value) for key, value in x.items()}).cache()
    return objective, features, dataset, sum(len(row["targets"]) for row in rows)


def measure(make, seconds: float, repeated: int) -> float:
    """Return tokens a second of readings of the documents, after one that is not counted."""
    dataset, tokens = make(), 0
    for _ in dataset:
        pass
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        for _ in dataset:
            pass
        tokens += repeated
    return tokens / (time.monotonic() - start)


def main() -> None:
    """Print a line of JSON for each way."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--files", default=str(ROOT / "data/ro_mini/train-*.jsonl"))
    flags.add_argument("--sentencepiece", default="data/ro_mini/ro_mini.model")
    flags.add_argument("--tokenizer", default="data/ro_mini/wordpiece")
    flags.add_argument("--seconds", type=float, default=5.0)
    flags.add_argument("--rounds", type=int, default=5)
    args = flags.parse_args()
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    makers = {}
    for name in WAYS:
        vocabulary = vocabularies.tokenizer(args.tokenizer)
        if name == "span_corruption":
            vocabulary = vocabularies.sentencepiece(args.sentencepiece)
        objective, features, documents, tokens = documents_of(name, args.files, vocabulary)
        targets = objective.lengths(INPUTS, vocabulary).targets

        def make(objective, documents, features, lengths):
            with seqio.utils.map_seed_manager(0):
                return objective.preprocess(documents, lengths, features)

        lengths = {"inputs": INPUTS, "targets": targets}
        makers[name] = (functools.partial(make, objective, documents, features, lengths), tokens)
    for _ in range(args.rounds):
        for name, (make, tokens) in makers.items():
            found[name].append(measure(make, args.seconds, tokens))
    for name, rates in found.items():
        low, high = np.min(rates), np.max(rates)
        line = {"way": name, "tokens_per_s": round(statistics.median(rates))}
        line |= {"range": [round(low), round(high)], "load": round(os.getloadavg()[0], 1)}
        print(json.dumps(line))


if __name__ == "__main__":
    main()
