"""Progress is lines in a log, and a redrawn bar on a terminal."""

import io
import time

import numpy as np
import rich.console

from t5x.metrics import UNNORMALIZED_LOSS
from t5x.monitoring import progress_bar
from t5x.monitoring.progress_bar import Progress


def console(terminal):
    file = io.StringIO()
    return file, rich.console.Console(
        file=file, force_terminal=terminal, width=200, highlight=False, legacy_windows=False
    )


def wait_for(text, file):
    """Wait for what another thread writes."""
    until = time.monotonic() + 60
    while text not in file.getvalue():
        assert time.monotonic() < until
        time.sleep(0.01)


class Clock:
    """Seconds that pass when a test adds them."""

    now = 0.0

    def __call__(self):
        return self.now


SUMS = {"cross_ent_loss": 30.0, "unnormalized_z_loss": 2.0, "target_tokens": 10.0}
SUMS |= {"correct": 5.0, "learning_rate": 1e-5}
SUMS |= {"target_positions": 20.0, "input_positions": 40.0}
SUMS = {key: np.float32(value) for key, value in SUMS.items()}
FIGURES = {
    UNNORMALIZED_LOSS: 5.1234,
    "accuracy": 0.25,
    "learning_rate": 0.0025,
    "timing/tokens_per_second": 12345.6,
    "timing/steps_per_second": 0.5,
    "data/wait_share": 0.031,
}


def test_a_report_is_one_plain_line():
    file, out = console(terminal=False)
    with Progress(300, 0, out) as progress:
        progress.step(1)
        progress.report(100, FIGURES)
    (report,) = file.getvalue().splitlines()
    for shown in ("100/300", "loss 5.123", "accuracy 0.250", "0.0025", "12,346", "3%", "6m 40s"):
        assert shown in report, shown
    assert "MFU" not in report  # the peak of this device is unknown


def test_a_report_says_how_many_steps_it_is_about():
    file, out = console(terminal=False)
    with Progress(300, 50, out) as progress:
        progress.report(100, FIGURES)
        progress.report(200, FIGURES)
        progress.returned(80)  # a loss that is not finite
        progress.report(100, FIGURES)
    reports = file.getvalue().splitlines()
    counts = [line.partition("mean of ")[2].partition(" ")[0] for line in reports]
    assert counts == ["50", "100", "20"]


def test_a_terminal_shows_all_figures():
    file, out = console(terminal=True)
    clock = Clock()
    with Progress(300, 100, out, peak_share=0.1, clock=clock) as progress:
        for step in (101, 102, 103):
            clock.now += 0.5
            progress.step(step, SUMS, waited=0.05)
        wait_for("step 103/300", file)
        progress.saved(100)
        progress.step(104, SUMS)
        with progress.busy("evaluating my_task"):
            wait_for("evaluating my_task …", file)
    text = file.getvalue()
    for shown in ("loss 3.200", "accuracy 0.500", "120 tokens/s", "MFU 20.0%"):
        assert shown in text, shown
    for shown in ("waiting for data 10%", "checkpoint_100", "1m 05s left"):
        assert shown in text, shown


def test_a_log_file_gets_a_line_a_minute():
    file, out = console(terminal=False)
    clock = Clock()
    with Progress(1000, 0, out, clock=clock) as progress:
        for step in range(1, 200):
            clock.now += 1.0
            progress.step(step, SUMS)
    lines = file.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["60/1,000", "120/1,000", "180/1,000"]
    assert "15m 40s" in lines[0]


def test_a_skipped_step_shows_no_loss():
    """Its sums are all 0."""
    file, out = console(terminal=False)
    clock = Clock()
    with Progress(300, 0, out, clock=clock) as progress:
        for step, skipped in enumerate((0, 1, 0), 1):
            clock.now += 100
            sums = {name: value * (1 - skipped) for name, value in SUMS.items()}
            progress.step(step, sums | {"skipped": np.float32(skipped)})
    lines = file.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["1/300", "3/300"]
    assert not [line for line in lines if "loss 0.000" in line]


def test_a_report_restarts_the_minute_and_an_exploded_loss_is_short():
    file, out = console(terminal=False)
    clock = Clock()
    with Progress(1000, 0, out, clock=clock) as progress:
        clock.now += 59.0
        progress.report(59, FIGURES | {UNNORMALIZED_LOSS: 123456789012.3})
        clock.now += 2.0
        progress.step(61, SUMS)
    (line,) = file.getvalue().splitlines()
    assert "loss 1.23e+11" in line


def test_throughput_leaves_out_the_time_between_steps():
    """An evaluation of an hour makes no step slow."""
    _, out = console(terminal=False)
    clock = Clock()
    with Progress(1000, 0, out, clock=clock) as progress:
        for step in range(1, 40):
            if step == 20:
                with progress.busy("evaluating"):
                    clock.now += 3600.0
            clock.now += 1.0
            progress.step(step, SUMS)
            rates = progress.throughput.rates()
            assert rates is None or rates.steps_per_second == 1.0


def test_a_long_activity_is_named_in_a_log_file(monkeypatch):
    monkeypatch.setattr(progress_bar, "_LINE_SECONDS", 0.01)
    file, out = console(terminal=False)
    with Progress(1000, 0, out) as progress, progress.busy("compiling the train step"):
        wait_for("compiling the train step: ", file)
    assert "…" not in file.getvalue()


def test_a_note_is_in_the_log_too_with_its_brackets(caplog):
    note = "set it to ['train', 'validation'] or [/] not"
    file, out = console(terminal=False)
    with caplog.at_level("INFO"), Progress(1, 0, out) as progress:
        progress.note(note)
    assert note in file.getvalue()
    assert note in caplog.messages


def test_forced_colours_make_no_terminal_of_a_file(monkeypatch):
    """Jupyter sets FORCE_COLOR, and would show hundreds of frames of a bar."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not Progress(10, 0).console.is_terminal
