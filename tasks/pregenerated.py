r"""Sequences that an older tool has masked beforehand: epoch_0.json, epoch_1.json and so on.

    from tasks import pregenerated
    pregenerated.add("my_bert", "/data/pregenerated", "vocabularies/my_bert")

makes a task of a folder with such files, `.gz` and `.zst` too. They have one example a line, as the
script `pregenerate_training_data.py` of pytorch-pretrained-bert and its successors write them:

    {"tokens": ["[CLS]", "Ana", "[MASK]", "[SEP]", …], "segment_ids": [0, 0, 0, 0, …],
     "is_random_next": false, "masked_lm_positions": [2], "masked_lm_labels": ["are"]}

The examples are those of `tasks.objectives.masked_lm`. All files together are an epoch; its order
is new each time, the masks are not. A sample of such files is made by

    python -m tasks.pregenerated --task ro_mini_bert --length 128 --epochs 2 \
        --examples 1000 --out sample
"""

if __name__ == "__main__":  # before any library writes to stderr
    from command_line import quiet

    quiet.start()

import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from command_line import arguments
from command_line.guard import guarded
from tasks import caches, registered, vocabularies
from tasks.documents import Column
from tasks.objectives.masked_lm import MaskedLM, check_lengths
from tasks.sources import CorpusSource
from tasks.streaming.tf_callbacks import vectors
from tasks.text.inline_map import map_each
from tasks.text.token_chunks import unbatch
from tasks.tokenizer_vocabulary import TokenizerVocabulary

FILES = "epoch_*[0-9].json*"  # beside them there is epoch_0_metrics.json
SHUFFLED = 1024  # examples
_TEXT = ("tokens", "masked_lm_positions", "masked_lm_labels")
_PAIR = ("segment_ids", "is_random_next")
_LINES_A_CALL = 64


class _Instance(Column):
    """The columns of an example as one text, JSON."""

    def __init__(self, pairs: bool):
        super().__init__(_TEXT[0])
        self.fields = (*_TEXT, *(_PAIR if pairs else ()))

    def extract(self, record: Mapping) -> str | None:
        """Return the columns as JSON, None if one is absent."""
        found = {field: record.get(field) for field in self.fields}
        return None if None in found.values() else json.dumps(found)


def add(
    name: str,
    files: str | Mapping[str, str | Sequence[str]],
    vocabulary: str | Callable[[], str] | TokenizerVocabulary,
    pairs: bool = True,
) -> seqio.Task:
    """Register a task of examples that are masked already.

    Args:
      name: of the task.
      files: the folder of the files, which become the split `train`; or patterns by split, as for
        `tasks.sources.CorpusSource`.
      vocabulary: the one that the tokens are of, as for `tasks.vocabularies.tokenizer`.
      pairs: whether examples have token types and a label of the next sentence.
    """
    if isinstance(files, str):
        files = {"train": f"{files.rstrip('/')}/{FILES}"}
    if not isinstance(vocabulary, TokenizerVocabulary):
        vocabulary = vocabularies.tokenizer(vocabulary)
    objective = MaskedLM(pairs=pairs)
    return seqio.TaskRegistry.add(
        name,
        source=CorpusSource(files=files, column=_Instance(pairs)),
        preprocessors=[functools.partial(parse, objective=objective, task=name)],
        output_features=objective.features(vocabulary),
        metric_fns=[],
        shuffle_buffer_size=SHUFFLED,
        task_cls=caches.Task,
    )


def parse(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    objective: MaskedLM,
    task: str,
    sequence_length: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Turn {"text"}, JSON, into the examples of `objective`.

    Reading ends with a ValueError for an example that is too long, inconsistent, or has a token
    that is not in the vocabulary.
    """
    vocabulary = vocabularies.masking(output_features["targets"].vocabulary)
    if sequence_length is not None:
        check_lengths(objective, sequence_length, task)
    limit = (sequence_length or {}).get("inputs")
    numbers: dict[str, int] = {}

    def read(texts):
        if not numbers:
            numbers.update({piece: i for i, piece in enumerate(vocabulary.pieces) if piece})
        found = [_arrays(json.loads(text), numbers, limit, objective.pairs) for text in texts]
        *flat, labels = zip(*found, strict=True)
        lengths = np.array([len(each) for each in flat[0]], np.int64)
        joined = [np.concatenate(arrays).astype(np.int32) for arrays in flat]
        return *joined, lengths, np.array(labels, np.int64)

    batches = map_each(dataset, lambda x: x["text"]).batch(_LINES_A_CALL)
    examples = lambda texts: objective.as_examples(vectors(read, [texts], "iiiill"))
    return unbatch(batches.map(examples, num_parallel_calls=tf.data.AUTOTUNE))


def _arrays(
    instance: Mapping[str, Any], numbers: Mapping[str, int], limit: int | None, pairs: bool
) -> tuple[Any, ...]:
    """Return inputs, targets, weights and types, int [n], and the label, of one line."""
    tokens, positions = instance["tokens"], instance["masked_lm_positions"]
    labels = instance["masked_lm_labels"]
    n = len(tokens)
    if limit is not None and n > limit:
        raise ValueError(
            f"an example has {n} tokens, but TASK_FEATURE_LENGTHS['inputs'] is {limit}: set both "
            f"lengths to at least {n}"
        )
    types = instance["segment_ids"] if pairs else [0] * n
    if len(types) != n or len(positions) != len(labels):
        raise ValueError(
            f"an example has {n} tokens with {len(types)} segment_ids, and {len(positions)} "
            f"masked_lm_positions with {len(labels)} masked_lm_labels: make the file again"
        )
    try:
        inputs = [numbers[token] for token in tokens]
        hidden = [numbers[token] for token in labels]
    except KeyError as error:
        raise ValueError(
            f"an example has the token {error.args[0]!r}, which the vocabulary lacks: name the "
            "vocabulary that the files were made with"
        ) from error
    targets, weights = np.array(inputs), np.zeros([n], np.int64)
    if positions and not 0 <= min(positions) <= max(positions) < n:
        raise ValueError(
            f"an example of {n} tokens has masked_lm_positions from {min(positions)} to "
            f"{max(positions)}: make the file again"
        )
    targets[positions] = hidden
    weights[positions] = 1
    return inputs, targets, weights, types, int(instance["is_random_next"]) if pairs else 0


def instances(
    task: seqio.Task, lengths: Mapping[str, int], split: str, seed: int, most: int
) -> Iterator[dict[str, Any]]:
    """Yield at most `most` examples of a task of masked_lm as the older tool wrote them."""
    vocabulary = vocabularies.masking(task.output_features["targets"].vocabulary)
    pieces = vocabulary.pieces
    found = task.get_dataset(lengths, split, shuffle=True, seed=seed).as_numpy_iterator()
    for example in itertools.islice(found, most):
        (positions,) = np.nonzero(example["loss_weights"])
        types = example.get("type_ids", np.zeros_like(example["inputs"]))
        yield {
            "tokens": [pieces[i] for i in example["inputs"]],
            "segment_ids": types.tolist(),
            "is_random_next": bool(example.get("next_sentence_label", [0])[0]),
            "masked_lm_positions": positions.tolist(),
            "masked_lm_labels": [pieces[i] for i in example["targets"][positions]],
        }


def write(
    task: seqio.Task,
    folder: str,
    lengths: Mapping[str, int],
    split: str = "train",
    epochs: int = 1,
    examples: int = 1000,
    seed: int = 0,
) -> list[int]:
    """Write epoch_N.json and epoch_N_metrics.json; return the examples of each epoch."""
    tf.io.gfile.makedirs(folder)
    counts = []
    for epoch in range(epochs):
        found = instances(task, lengths, split, seed + epoch, examples)
        lines = [json.dumps(each, ensure_ascii=False) + "\n" for each in found]
        metrics = {"num_training_examples": len(lines), "max_seq_len": lengths["inputs"]}
        for ending, content in ((".json", "".join(lines)), ("_metrics.json", json.dumps(metrics))):
            with tf.io.gfile.GFile(f"{folder.rstrip('/')}/epoch_{epoch}{ending}", "w") as file:
                file.write(content)
        counts.append(len(lines))
    return counts


@guarded
def main(argv: Sequence[str]) -> None:
    """Write a sample of pre-generated files."""
    parser = arguments.parser("python -m tasks.pregenerated", "Writes a sample of masked examples.")
    add = parser.add_argument
    add("--task", type=arguments.text, default="ro_mini_bert", help="of masked_lm")
    add("--out", type=arguments.text, required=True, help="a folder, local or gs://")
    add("--length", type=arguments.integer(5), default=128, help="tokens, at most")
    add("--split", type=arguments.text, default="train")
    add("--epochs", type=arguments.integer(1), default=1, help="files")
    add("--examples", type=arguments.integer(1), default=1000, help="at most, of each file")
    add("--seed", type=arguments.integer(0), default=0, help="of order and masks")
    add("--module", action="append", dest="modules", help="imported first (tasks.romanian)")
    args = parser.parse_args(argv)
    lengths = {"inputs": args.length, "targets": args.length}
    arguments.check_output_folder("--out", args.out, buckets_too=True)
    task = registered.find(args.task, "--task", tuple(args.modules or ("tasks.romanian",)))
    vocabularies.masking(task.output_features["targets"].vocabulary)
    counts = write(task, args.out, lengths, args.split, args.epochs, args.examples, args.seed)
    print(f"wrote {args.out}/epoch_0.json to epoch_{len(counts) - 1}.json: {counts} examples")


if __name__ == "__main__":
    main(sys.argv[1:])
