"""Where a run stands, for the person who watches it.

On a terminal one line is redrawn: step, loss, tokens a second, time left. Elsewhere (a log file, a
pod) a plain line is printed at every report.

  with Progress(total_steps=300, first_step=0) as progress:
      progress.step(1)
      progress.report(100, {"loss_per_nonpadding_target_token": 5.1, ...})
      progress.note("checkpoint_100 saved")
"""

import sys
import time
from collections.abc import Mapping

import jax
import rich.console
import rich.progress

LOSS = "loss_per_nonpadding_target_token"


class Progress:
    """Progress of one run; only the first process of a pod says anything.

    Args:
      total_steps: where the run ends.
      first_step: where it began or resumed.
      console: where to write, default standard error.
    """

    def __init__(
        self, total_steps: int, first_step: int, console: rich.console.Console | None = None
    ):
        self.total_steps = total_steps
        self.console = console or rich.console.Console(
            file=sys.stderr, quiet=jax.process_index() != 0, highlight=False
        )
        columns = [
            rich.progress.TextColumn("step {task.completed:,}/{task.total:,}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[figures]}"),
            rich.progress.TimeRemainingColumn(),
        ]
        self._bar = rich.progress.Progress(
            *columns, console=self.console, disable=not self.console.is_terminal
        )
        self._task = self._bar.add_task(
            "", total=total_steps, completed=first_step, figures="compiling"
        )
        self._reported = (time.monotonic(), first_step)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def step(self, step: int, sums: Mapping[str, float] | None = None) -> None:
        """A step is done; `sums` are those of the step before it."""
        figures = {}
        if sums:
            tokens = max(float(sums["target_tokens"]), 1.0)
            loss = (float(sums["cross_ent_loss"]) + float(sums["z_loss"])) / tokens
            speed = self._bar.tasks[0].speed
            rate = speed * (sums["target_positions"] + sums["input_positions"]) if speed else 0.0
            figures = {"figures": f"loss {loss:.3f}  {rate:,.0f} tokens/s"}
        self._bar.update(self._task, completed=step, **figures)

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """Prints the figures of the steps since the last report."""
        now = time.monotonic()
        before, first = self._reported
        self._reported = (now, step)
        left = (now - before) / max(step - first, 1) * (self.total_steps - step)
        parts = [
            f"step {step:,}/{self.total_steps:,}",
            f"loss {metrics[LOSS]:.3f}",
            f"accuracy {metrics['accuracy']:.3f}",
            f"{metrics['timing/tokens_per_second']:,.0f} tokens/s",
            f"waiting for data {metrics['data/wait_share']:.0%}",
            f"{duration(left)} left",
        ]
        self.note("  ".join(parts))

    def note(self, text: str) -> None:
        """Prints a line of its own."""
        self.console.print(text, soft_wrap=True, markup=False, emoji=False)


def duration(seconds: float) -> str:
    """Seconds as `1d 2h`, `3h 04m`, `5m 06s` or `7s`."""
    seconds = int(seconds)
    for unit, letter, lower, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if seconds >= unit:
            return f"{seconds // unit}{letter} {seconds % unit // lower:02d}{below}"
    return f"{seconds // 60}m {seconds % 60:02d}s" if seconds >= 60 else f"{seconds}s"
