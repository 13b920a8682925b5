"""Examples are those of the task itself."""

import itertools

import seqio

from tasks.corpus import excerpt
from tasks.jobs import summarization  # noqa: F401  registers cnn_dailymail
from tasks.look import sampling
from tasks.romanian import RO_MINI

TASK = seqio.TaskRegistry.get("ro_mini_span_corruption")


def test_examples_have_the_lengths_and_invert_to_the_text():
    rows = list(itertools.islice(excerpt.documents(RO_MINI, "train"), 20))
    lengths = sampling.default_lengths(TASK)
    assert lengths == {"inputs": 512, "targets": 114}
    first = sampling.examples(TASK, rows, "train", lengths)[0]
    assert {name: len(row) for name, row in first.items()} == lengths
    vocabulary = TASK.output_features["targets"].vocabulary
    marks = [text for is_mark, text in sampling.spans(vocabulary, first["inputs"], {}) if is_mark]
    assert marks == [f"<{n}>" for n in range(28)]
    assert sampling.spans(vocabulary, first["targets"], {})[0] == (True, "<0>")


def test_normalization_is_that_of_the_task():
    assert sampling.normalized(TASK, "ş  a") == "ș a"
    no_spaces = seqio.TaskRegistry.get("ro_mini_no_spaces_span_corruption")
    assert sampling.normalized(no_spaces, "ş  a") == "șa"
    assert sampling.normalized(seqio.TaskRegistry.get("cnn_dailymail"), "ş  a") == "ş a"
