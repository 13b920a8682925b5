"""A task of the lines of a file or of standard input, which needs no registration.

A text file has an input per line. A .jsonl file has an object per line, {"inputs": …} and, to be
scored, "targets"; "-" is standard input, text. Empty lines are inputs too, so that the n-th output
belongs to the n-th line. Inputs are encoded unchanged, after the prefix.
"""

import codecs
import hashlib
import os
import re
import sys
from collections.abc import Mapping, Sequence

import seqio
import tensorflow as tf

from common.errors import UserError
from common.small_files import parse_json

FIELDS = ("inputs", "targets")
SETTING = "infer_script.infer.input_file"  # that names the file


class LineSource(seqio.FunctionDataSource):
    """The lines of a file as dicts of texts, and its SHA-256; malformed lines are a UserError.

    `labels`: the text that the model writes for each target, if targets are labels of classes.
    """

    def __init__(self, path: str, split: str, labels: Mapping[str, str] | None = None):
        content = _content(path)
        self.fingerprint = hashlib.sha256(content).hexdigest()
        content = content.removeprefix(codecs.BOM_UTF8)
        read = _parse_json if path.endswith(".jsonl") else _parse_text
        lines = content.removesuffix(b"\n").split(b"\n") if content else []
        if not lines:
            raise UserError(f"{SETTING} is {path!r}, which is empty; name a file that has lines.")
        self.examples = [read(path, i, line) for i, line in enumerate(lines, 1)]
        names = self.examples[0].keys()
        for i, example in enumerate(self.examples, 1):
            if example.keys() != names:
                raise UserError(
                    f"Line {i} of {path} has the fields {', '.join(example)} and line 1 "
                    f"{', '.join(names)}; give all lines the same."
                )
        for i, example in enumerate(self.examples, 1):
            if labels and "targets" in example:
                example["targets_pretokenized"] = label = example["targets"].strip()
                if label not in labels:
                    raise UserError(
                        f"Line {i} of {path} has the target {label!r}; give it one of the task's "
                        f"classes {', '.join(map(repr, labels))}."
                    )
                example["targets"] = labels[label]

        columns = {name: [one[name] for one in self.examples] for name in self.examples[0]}
        make = lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensor_slices(columns)
        super().__init__(make, [split], num_input_examples={split: len(lines)})


def line_task(
    path: str,
    input_vocabulary: seqio.Vocabulary,
    output_vocabulary: seqio.Vocabulary,
    split: str,
    prefix: str = "",
    like: seqio.Task | None = None,
) -> seqio.Task:
    """Return the task of a text or .jsonl file, named after it; its only split is `split`.

    Its targets and predictions are labels if those of the task `like` are. Characters that seqio
    allows in no name become "_".
    """
    stem = "stdin" if path == "-" else os.path.basename(path).rpartition(".")[0] or "lines"
    name = re.sub(r"[^\w.:#]", "_", stem)  # what seqio allows

    def add_prefix(example):
        texts = {f"{name}_pretokenized": example[name] for name in FIELDS if name in example}
        inputs = tf.strings.join([prefix, example["inputs"]])
        return texts | {"targets": ""} | example | {"inputs": inputs}

    labels = getattr(like, "labels", None)
    task = seqio.Task(
        name,
        source=LineSource(path, split, labels and labels()),
        preprocessors=[
            lambda dataset: dataset.map(add_prefix),
            lambda dataset, output_features: seqio.preprocessors.tokenize(
                dataset, output_features, copy_pretokenized=False
            ),
            seqio.preprocessors.append_eos_after_trim,  # cut inputs end as in training
        ],
        output_features={
            "inputs": seqio.Feature(input_vocabulary, add_eos=True),
            "targets": seqio.Feature(output_vocabulary, add_eos=True),
        },
        postprocess_fn=like.postprocessor if like and labels else None,
    )
    if labels:
        task.labels = labels
    # A conversion of these functions takes seconds.
    task.get_dataset = tf.autograph.experimental.do_not_convert(task.get_dataset)
    return task


def longer_than(task: seqio.Task, lengths: dict[str, int], prefix: str = "") -> list[int]:
    """Return the numbers, from 1, of the lines with more tokens than `lengths`."""

    def is_long(example: dict[str, str]) -> bool:
        texts = {"inputs": prefix + example["inputs"], "targets": example.get("targets", "")}
        vocabularies = {name: task.output_features[name].vocabulary for name in FIELDS}
        return any(len(vocabularies[n].encode(texts[n])) >= lengths[n] for n in FIELDS)

    return [i for i, example in enumerate(task.source.examples, 1) if is_long(example)]


def _content(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except (tf.errors.OpError, OSError) as error:
        raise UserError(
            f"{SETTING} is {path!r}, which cannot be read: {_reason(path, error)}."
        ) from error


def _reason(path: str, error: Exception) -> str:
    """Return the first line of an error without the path, which TensorFlow writes in front."""
    first = (str(error).splitlines() or [""])[0].removeprefix(f"{path}; ").strip(" .")
    return first or type(error).__name__


def _parse_text(path: str, number: int, line: bytes) -> dict[str, str]:
    try:
        return {"inputs": line.decode("utf-8").removesuffix("\r")}
    except UnicodeDecodeError as error:
        raise UserError(
            f"Line {number} of {path} is not UTF-8 ({error.reason} at byte {error.start}); "
            "convert the file, for example with iconv."
        ) from error


def _parse_json(path: str, number: int, line: bytes) -> dict[str, str]:
    text = _parse_text(path, number, line)["inputs"]
    try:
        found = parse_json(text)
    except ValueError as error:
        raise UserError(
            f'Line {number} of {path} is no JSON object with "inputs": {error}.'
        ) from error
    wanted: Sequence[str] = [n for n in FIELDS if n in found]
    if "inputs" not in wanted or not all(isinstance(found[name], str) for name in wanted):
        raise UserError(
            f"Line {number} of {path} is {text[:60]!r}; it needs a string "
            '"inputs" and, to be scored, a string "targets".'
        )
    return {name: found[name] for name in wanted}
