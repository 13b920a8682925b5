"""Spans, states and configurations are read from event lines, some of them damaged."""

import json

import pytest

from report.history import History, changes


def history(*events, last_seen=0.0):
    lines = [json.dumps({"time": t, "event": e, **more}) for t, e, more in events]
    return History("\n".join(lines), last_seen)


def spans(found):
    return [(s.kind, s.time, s.seconds) for s in found.spans]


def test_a_run_from_start_to_end():
    found = history(
        (100, "start", {"step": 0}), (120, "compile", {"seconds": 20}), (300, "end", {"step": 9})
    )
    assert spans(found) == [("running", 100, 200), ("compile", 100, 20), ("end", 300, 0)]
    assert found.state(now=1000) == "ended"


def test_a_killed_run_ran_until_its_last_event():
    found = history((100, "start", {}), (150, "saved", {}), (500, "start", {}), (600, "end", {}))
    assert [s for s in spans(found) if s[0] == "running"] == [
        ("running", 100, 50),
        ("running", 500, 100),
    ]


@pytest.mark.parametrize(
    ("events", "now", "state"),
    [
        ([], 0, "unknown"),
        ([(100, "start", {})], 200, "running"),
        ([(100, "start", {})], 9000, "silent"),
        ([(100, "start", {}), (200, "failed", {"reason": "OSError"})], 300, "failed"),
        ([(100, "start", {}), (200, "interrupted", {}), (210, "saved", {})], 300, "interrupted"),
        ([(100, "start", {}), (200, "end", {}), (250, "start", {})], 300, "running"),
    ],
)
def test_states(events, now, state):
    assert history(*events).state(now) == state
    assert history(*events, last_seen=now).state(now) == {"silent": "running"}.get(state, state)


def test_damaged_lines_are_skipped():
    good = json.dumps({"time": 1, "event": "start"})
    strange = ['{"time": 1, "ev', "", "7", "[]", '{"event": "save"}', '{"time": "x", "event": "a"}']
    found = History("\n".join([good, *strange, '{"time": 2, "event": "save", "seconds": "x"}']))
    assert [s.kind for s in found.spans] == ["running", "save"]


def test_infillings_come_by_sentence_and_step():
    made = lambda step, text: {"step": step, "sentences": {"a <extra_id_0>": text}}
    found = history(
        (1, "infill", made(5, "a [x]")), (2, "infill", made(9, "a [z]")),
        (3, "infill", made(5, "a [y]")), (4, "infill", {"sentences": 7}),
    )  # fmt: skip
    assert found.infills == {"a <extra_id_0>": [(5, "a [y]"), (9, "a [z]")]}


def test_the_expected_loss_is_the_last_starts():
    found = history(
        (1, "start", {"expected_loss": {"0": 8}}), (2, "start", {"expected_loss": {"100": 4.5}})
    )
    assert found.expected_loss == [(100, 4.5)]
    assert history((1, "start", {})).expected_loss == []


# --- what changed between configurations

GIN = """from __gin__ import dynamic_registration
import __main__ as train_script

# Macros:
# ====
TRAIN_STEPS = 100
SENTENCES = \\
    ('one = 1',
     'two')

# Parameters for trainer.Trainer:
trainer.Trainer.num_microbatches = None
train/utils.DatasetConfig:
  batch_size = 8
  seed = 0
LAST = 'x'
"""


def test_changes_are_named_with_both_values():
    after = GIN.replace("100", "200").replace("LAST = 'x'\n", "NEW = 1\n")
    assert changes(GIN, after) == [
        ("LAST", "'x'", None),
        ("NEW", None, "1"),
        ("TRAIN_STEPS", "100", "200"),
    ]
    assert changes(GIN, GIN) == []
    assert ("SENTENCES", "('one = 1', 'two')", None) in changes(GIN, "TRAIN_STEPS = 100")
    assert changes(GIN, "no gin") == changes(GIN, "")
