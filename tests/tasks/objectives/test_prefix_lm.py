"""Prefix language modelling cuts anywhere and needs no sentinels."""

import numpy as np
import pytest
import seqio

from fakes.objectives import MANY, SENTINELS, run, text
from fakes.refuses import refuses
from tasks import corpora, romanian
from tasks.objectives import prefix_lm


def test_chunks_are_cut_in_the_middle_on_average():
    examples = run("prefix_lm", text(MANY), {"inputs": 64, "targets": 64})
    parts = [part for e in examples for part in (e["inputs"], e["targets"])]
    np.testing.assert_array_equal(np.concatenate(parts), text(MANY))
    assert sum(map(len, parts[::2])) / MANY == pytest.approx(0.5, rel=0.02)
    assert {len(e["inputs"]) for e in examples} == set(range(1, 64))
    assert not np.isin(np.concatenate(parts), [*SENTINELS, 0]).any()


def test_no_sentinels_are_needed():
    vocabulary = seqio.ByteVocabulary(extra_ids=0)
    corpora.add("bare", romanian.RO_MINI, vocabulary, objective="prefix_lm")
    try:
        lengths = {"inputs": 64, "targets": 64}
        task = seqio.TaskRegistry.get("bare")
        examples = task.get_dataset(lengths, "validation", shuffle=False, seed=0)
        assert len(list(examples.take(3))) == 3
    finally:
        seqio.TaskRegistry.remove("bare")


def test_lengths_without_space_for_a_token_and_eos_are_refused():
    with refuses("TASK_FEATURE_LENGTHS", {"inputs": 1, "targets": 9}):
        run(prefix_lm.PrefixLM(), text(10), {"inputs": 1, "targets": 9})
