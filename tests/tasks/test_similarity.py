"""Two texts become one example, and correlations are those of scipy."""

import json

import numpy as np
import pytest
import scipy.stats
import seqio
import tensorflow as tf

from fakes.tokenizer_files import WORDPIECE
from tasks import similarity, vocabularies
from tasks.rows import Rows

PIECES = vocabularies.tokenizer(WORDPIECE)
ROW = {"a": "Ana doarme.", "b": "Ana nu doarme deloc, ci merge acasă.", "score": 3.5}


@pytest.fixture
def task(tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps(ROW) + "\n")
    columns = {"first": "a", "second": "b", "targets": "{score}"}
    source = Rows(files={"train": str(tmp_path / "train.jsonl")}, columns=columns)
    yield similarity.pairs("toy_similar", source, WORDPIECE)
    seqio.TaskRegistry.remove("toy_similar")


def test_both_texts_are_marked(task):
    (found,) = task.get_dataset({"inputs": 99, "targets": 99}, "train").as_numpy_iterator()
    first, second = ([2, *PIECES.encode(ROW[side]), 3] for side in "ab")
    assert found["inputs"].tolist() == first + second
    assert found["targets"].tolist() == [1] * len(first) + [2] * len(second)
    assert np.nonzero(found["loss_weights"])[0].tolist() == [len(first)]
    assert found["targets_pretokenized"] == b"3.5"


def test_each_text_has_half_of_the_length(task):
    (found,) = task.get_dataset({"inputs": 8, "targets": 8}, "train").as_numpy_iterator()
    sides = [[2, *PIECES.encode(ROW[side])[:2], 3] for side in "ab"]
    assert found["inputs"].tolist() == sides[0] + sides[1]


def test_a_line_is_one_text_or_two(task):
    lines = tf.data.Dataset.from_tensor_slices({"inputs": ["Ana doarme.", "Ana.\tMere."]})
    made = similarity.examples(lines, task.output_features, normalization={})
    one, two = made.as_numpy_iterator()
    assert set(one["targets"]) == {1}
    assert not one["loss_weights"].any()
    assert set(two["targets"]) == {1, 2}


def test_spearman_is_that_of_scipy():
    random = np.random.default_rng(0)
    known = random.integers(0, 5, 40)  # many are equal
    scores = known + random.normal(0, 2, 40)
    wanted = scipy.stats.spearmanr(known, scores).statistic
    found = similarity.spearman([str(x) for x in known], scores.tolist())
    assert found["spearman"] == pytest.approx(wanted)
    assert similarity.spearman(["1", "1"], [0.1, 0.2]) == {"spearman": 0}
    assert similarity.spearman([], []) == {"spearman": 0}
    assert similarity.similarity(["", ""], [0.5, 1.0]) == {"similarity": 0.75}


def test_other_columns_are_refused(tmp_path):
    source = Rows(files={"train": "x.jsonl"}, columns={"inputs": "a", "targets": "b"})
    with pytest.raises(ValueError, match="the columns 'first' and 'second', and 'targets' if"):
        similarity.pairs("toy_other", source, WORDPIECE)


def test_vectors_stay_numbers():
    assert similarity.vocabulary().decode(np.array([0.5, -1.0])) == [0.5, -1.0]
    assert similarity.vocabulary() == similarity.VectorVocabulary()
