"""Counts of one host and of several, under the names that dashboards know."""

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from t5x.input_pipeline.record_counts import data_metrics, sum_over_hosts, summary

COUNTS = {
    "b": {"read": 10, "skipped_blank": 1, "epochs": 3},
    "a": {"read": 7, "skipped_blank": 0, "epochs": 2},
}


def of_int64(gather):
    """Return a gather of int64 [n] as one of int32 [2 n], the only integers that JAX carries."""

    def halves(mine):
        assert mine.dtype == np.int32
        return gather(mine.view(np.int64)).view(np.int32)

    return halves


def test_documents_are_the_records_that_are_not_skipped():
    found = data_metrics(COUNTS)
    assert (found["data/records/b"], found["data/documents/b"]) == (10.0, 9.0)


def test_one_host_knows_all():
    assert sum_over_hosts(COUNTS, 0) == COUNTS
    assert sum_over_hosts({"a": {}}, 0) == {"a": {}}


def test_hosts_add_records_and_agree_on_epochs(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    other = lambda mine: np.stack([mine, mine + 5])  # five more of each, epochs and rows too
    monkeypatch.setattr(multihost_utils, "process_allgather", of_int64(other))
    found = sum_over_hosts(COUNTS, 0)
    assert found["b"] == {"read": 25, "skipped_blank": 7, "epochs": 3}
    assert found["a"] == {"read": 19, "skipped_blank": 5, "epochs": 2}


def test_records_beyond_what_float32_and_int32_count_are_exact(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    other = lambda mine: np.stack([mine, mine + 1])
    monkeypatch.setattr(multihost_utils, "process_allgather", of_int64(other))
    many = 3_000_000_001
    assert sum_over_hosts({"a": {"read": many}}, 0) == {"a": {"read": 2 * many + 1}}


def test_hosts_that_share_a_replica_count_once(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    pairs = lambda mine: np.stack([mine, mine, mine + 4, mine + 4])  # of rows 0 and 4
    monkeypatch.setattr(multihost_utils, "process_allgather", of_int64(pairs))
    assert sum_over_hosts(COUNTS, 0)["b"] == {"read": 24, "skipped_blank": 6, "epochs": 3}


@pytest.mark.parametrize(
    ("counts", "emitted", "said"),
    [
        (
            {"read": 1518, "skipped_empty": 3, "skipped_not_UTF-8": 15},
            None,
            "18 of 1,518 records skipped (1.2 %): 3 empty, 15 not UTF-8",
        ),
        ({"read": 9, "kept_with_numbers": 2}, None, "2 kept with numbers"),
        ({"read": 9, "pieces": 400, "unknown_pieces": 5}, None, "5 of 400 pieces unknown (1.25 %)"),
        ({"read": 9, "texts_with_special_tokens": 1}, None, "1 text with special tokens"),
        ({"read": 60, "examples": 120, "cut_inputs": 12}, None, "12 inputs (10.0 %)"),
        ({"read": 60, "examples": 120, "cut_inputs": 12}, 60, "6 inputs (10.0 %)"),  # twice over
        ({"read": 60, "examples": 120, "cut_inputs": 12}, 50, "12 inputs (10.0 %)"),
    ],
)
def test_what_befell_records_is_counted_by_reason(counts, emitted, said):
    assert said in summary("q", "test", counts, *([emitted] if emitted else []))


def test_of_complete_records_there_is_nothing_to_say_unless_asked():
    assert summary("q", "test", {"read": 3, "examples": 3, "cut_inputs": 0}) is None
    assert "3 records" in summary("q", "test", {"read": 3}, is_complete=True)
    assert "14 epochs" in summary("q", "test", {"read": 3, "epochs": 14}, is_complete=True)
