"""Makes a task from the lines of a file or of standard input, without registering it.

A text file has an input per line. A .jsonl file has an object per line, {"inputs": …}, with
"targets" if they are to be scored. "-" is text from standard input. Empty lines are inputs too, so
that the n-th output belongs to the n-th line; what they are decoded to is left out. Inputs are
encoded unchanged, after the prefix.
"""

import codecs
import hashlib
import os
import re
import sys
from collections.abc import Mapping

import seqio
import tensorflow as tf

from common.errors import UserError
from common.small_files import parse_json
from common.source import CorpusTask, labels_of

FIELDS = ("inputs", "targets")
SETTING = "infer_script.infer.input_file"


class LineSource(seqio.FunctionDataSource):
    """The lines of a file as dicts of texts; `fingerprint` is its SHA-256.

    If the targets are labels of classes, `labels` has the text that the model writes for each.
    Raise UserError for a malformed line.
    """

    def __init__(self, path: str, split: str, labels: Mapping[str, str] | None = None):
        content = _content(path)
        self.fingerprint = hashlib.sha256(content).hexdigest()
        content = content.removeprefix(codecs.BOM_UTF8)
        parse = _parse_json if path.endswith(".jsonl") else _parse_text
        lines = content.removesuffix(b"\n").split(b"\n") if content else []
        if not lines:
            raise UserError(SETTING, path, "which is empty", "name a file that has lines")
        self.examples = [parse(path, i, line) for i, line in enumerate(lines, 1)]
        names = self.examples[0].keys()
        for i, example in enumerate(self.examples, 1):
            if example.keys() != names:
                raise UserError(
                    f"Line {i} of {path}",
                    why=f"has the fields {', '.join(example)} and line 1 {', '.join(names)}",
                    to_set="give all lines the same",
                )
        for i, example in enumerate(self.examples, 1):
            if labels and "targets" in example:
                example["targets_pretokenized"] = label = example["targets"].strip()
                if label not in labels:
                    classes = ", ".join(map(repr, labels))
                    raise UserError(
                        f"Line {i} of {path}",
                        why=f"has the target {label!r}",
                        to_set=f"give it one of the task's classes {classes}",
                    )
                example["targets"] = labels[label]

        columns = {name: [example[name] for example in self.examples] for name in self.examples[0]}
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

    If the task `like` predicts labels, so does this one. Characters that seqio
    does not allow in names become "_".
    """
    stem = "stdin" if path == "-" else os.path.basename(path).rpartition(".")[0] or "lines"
    name = re.sub(r"[^\w.:#]", "_", stem)  # only characters that seqio allows

    def add_prefix(example):
        texts = {f"{name}_pretokenized": example[name] for name in FIELDS if name in example}
        inputs = tf.strings.join([prefix, example["inputs"]])
        return texts | {"targets": ""} | example | {"inputs": inputs}

    labels = labels_of(like) if like else {}
    task = CorpusTask(
        name,
        source=LineSource(path, split, labels),
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
    task.labels = lambda: labels
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
        why = f"which cannot be read: {_reason(path, error)}"
        raise UserError(SETTING, path, why) from error


def _reason(path: str, error: Exception) -> str:
    """Return the first line of an error without the path, which TensorFlow writes in front."""
    first = (str(error).splitlines() or [""])[0].removeprefix(f"{path}; ").strip(" .")
    return first or type(error).__name__


def _parse_text(path: str, number: int, line: bytes) -> dict[str, str]:
    try:
        return {"inputs": line.decode("utf-8").removesuffix("\r")}
    except UnicodeDecodeError as error:
        raise UserError(
            f"Line {number} of {path}",
            why=f"is not UTF-8 ({error.reason} at byte {error.start})",
            to_set="convert the file, for example with iconv",
        ) from error


def _parse_json(path: str, number: int, line: bytes) -> dict[str, str]:
    text = _parse_text(path, number, line)["inputs"]
    try:
        content = parse_json(text)
    except ValueError as error:
        why = f'is not a JSON object with "inputs": {error}'
        raise UserError(f"Line {number} of {path}", why=why) from error
    names = [name for name in FIELDS if name in content]
    if "inputs" not in names or not all(isinstance(content[name], str) for name in names):
        raise UserError(
            f"Line {number} of {path}",
            text[:60],
            to_set='it needs a string "inputs" and, to be scored, a string "targets"',
        )
    return {name: content[name] for name in names}
