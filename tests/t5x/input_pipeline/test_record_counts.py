"""Counts of one host and of several, under the names that dashboards know."""

import jax
import pytest

from t5x.input_pipeline import record_counts
from t5x.input_pipeline.record_counts import data_metrics, sum_over_hosts, summary

COUNTS = {
    "b": {"read": 10, "skipped_blank": 1, "epochs": 3},
    "a": {"read": 7, "skipped_blank": 0, "epochs": 2},
}


def test_documents_are_the_records_that_are_not_skipped():
    found = data_metrics(COUNTS)
    assert (found["data/records/b"], found["data/documents/b"]) == (10.0, 9.0)


def test_one_host_knows_all():
    assert sum_over_hosts(COUNTS, 0) == COUNTS
    assert sum_over_hosts({"a": {}}, 0) == {"a": {}}


@pytest.mark.parametrize(
    ("rows", "more", "found"),  # of the hosts, of which hosts of the same rows read the same
    [
        ([0, 8], [0, 5], {"read": 25, "skipped_blank": 7, "epochs": 3}),
        ([0, 0, 4, 4], [0] * 4, {"read": 20, "skipped_blank": 2, "epochs": 3}),
    ],
)
def test_hosts_add_records_and_agree_on_epochs(monkeypatch, rows, more, found):
    added = lambda n: {t: {k: v + n for k, v in each.items()} for t, each in COUNTS.items()}
    hosts = [[row, added(n)] for row, n in zip(rows, more, strict=True)]
    monkeypatch.setattr(jax, "process_count", lambda: len(rows))
    monkeypatch.setattr(record_counts, "gather", lambda mine: hosts)
    assert sum_over_hosts(COUNTS, 0)["b"] == found


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
    read_ahead = {"read": 3, "epochs": 14}
    assert "epoch" not in summary("q", "test", read_ahead, is_complete=True)
    assert "about 0.38 epochs" in summary("q", "test", read_ahead, is_complete=True, epochs=0.381)
    assert not any("epoch" in name for name in data_metrics({"q": read_ahead}))
