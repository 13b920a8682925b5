"""What is said of a run: lines in a log, one line redrawn on a terminal."""

import io

import numpy as np
import pytest
import rich.console

from t5x.progress import LOSS, Progress, duration


def console(terminal):
    file = io.StringIO()
    return file, rich.console.Console(
        file=file, force_terminal=terminal, width=200, highlight=False, legacy_windows=False
    )


FIGURES = {
    LOSS: 5.1234,
    "accuracy": 0.25,
    "timing/tokens_per_second": 12345.6,
    "data/wait_share": 0.031,
}


def test_a_report_is_one_plain_line():
    file, out = console(terminal=False)
    with Progress(300, 0, out) as progress:
        progress.step(1)
        progress.report(100, FIGURES)
        progress.note("checkpoint_100 saved")
    report, note = file.getvalue().splitlines()
    assert report.startswith("step 100/300  loss 5.123  accuracy 0.250  12,346 tokens/s  waiting")
    assert "waiting for data 3%" in report
    assert report.endswith(" left")
    assert note == "checkpoint_100 saved"


def test_a_terminal_shows_where_the_run_stands():
    file, out = console(terminal=True)
    sums = {"cross_ent_loss": 30.0, "z_loss": 2.0, "target_tokens": 10.0}
    sums |= {"target_positions": 20.0, "input_positions": 40.0}
    with Progress(300, 100, out) as progress:
        for step in (101, 102, 103):
            progress.step(step, {k: np.float32(v) for k, v in sums.items()})
    text = file.getvalue()
    assert "step 103/300" in text
    assert "loss 3.200" in text
    assert "tokens/s" in text


def test_brackets_in_a_note_are_text():
    file, out = console(terminal=False)
    with Progress(1, 0, out) as progress:
        progress.note("set it to ['train', 'validation'] or [/] not")
    assert "['train', 'validation'] or [/] not" in file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m 00s"),
        (306, "5m 06s"),
        (3599, "59m 59s"),
        (3600, "1h 00m"),
        (11045, "3h 04m"),
        (86400, "1d 00h"),
        (180000, "2d 02h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
