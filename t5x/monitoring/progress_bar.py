"""Where a run stands, for the person who watches it.

On a terminal a bar is redrawn, and under it loss, accuracy, tokens a second, MFU, share of the time
spent waiting for data, last checkpoint. Elsewhere (a log file, a pod) such a line is printed at
every report, and once a minute between two.

  with Progress(total_steps=300, first_step=0) as progress:
      progress.step(1, sums, waited=0.01)
      progress.report(100, {"loss_per_nonpadding_target_token": 5.1, ...})
      with progress.busy("evaluating my_task"):
          ...
      progress.saved(100)
      progress.note("checkpoint_100 saved")
"""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import jax
import rich.console
import rich.progress
import rich.text

from t5x.monitoring.throughput import Speed

LOSS = "loss_per_nonpadding_target_token"


class Progress:
    """Progress of one run; only the first process of a pod says anything.

    Args:
      total_steps: where the run ends.
      first_step: where it began or resumed.
      console: where to write, default standard error.
      peak_share: MFU at one step a second, None where it is not known; see `flops.peak_share`.
      interval: seconds between two lines where there is no terminal.
      clock: gives seconds.
    """

    def __init__(
        self,
        total_steps: int,
        first_step: int,
        console: rich.console.Console | None = None,
        peak_share: float | None = None,
        interval: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.total_steps, self.peak_share = total_steps, peak_share
        self.interval, self._clock, self._said = interval, clock, clock()
        self.speed, self._last_saved = Speed(clock=clock), ""
        self.console = console or rich.console.Console(
            file=sys.stderr, quiet=jax.process_index() != 0, highlight=False
        )
        self._bar = _Bar(
            rich.progress.TextColumn("step {task.completed:,}/{task.total:,}"),
            rich.progress.BarColumn(bar_width=16),
            rich.progress.TextColumn("{task.fields[left]}"),
            rich.progress.TextColumn("[bold]{task.fields[doing]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task(
            "", total=total_steps, completed=first_step, left="", doing=""
        )

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def step(self, step: int, sums: Mapping[str, float] | None = None, waited: float = 0.0) -> None:
        """A step is done; `sums` are those of the step before it, `waited` seconds for its data."""
        if not sums:
            self._bar.update(self._task, completed=step)
            return
        self.speed.step(sums["target_positions"] + sums.get("input_positions", 0.0), waited)
        now = self._clock()
        due = not self.console.is_terminal and now - self._said >= self.interval
        if not due and not self.console.is_terminal:
            return
        tokens = max(float(sums["target_tokens"]), 1.0)
        loss = (float(sums["cross_ent_loss"]) + float(sums["z_loss"])) / tokens
        rate = self.speed.steps_per_second
        figures = self._figures(
            loss,
            float(sums["correct"]) / tokens,
            self.speed.tokens_per_second,
            rate,
            self.speed.wait_share,
        )
        if due:
            self._say_step(step, figures, rate)
        self._bar.figures = "  ".join(figures)
        self._bar.update(self._task, completed=step, left=self._left(step, rate))

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """Prints the figures of the steps since the last report."""
        figures = self._figures(
            metrics[LOSS],
            metrics["accuracy"],
            metrics["timing/tokens_per_second"],
            metrics["timing/steps_per_second"],
            metrics["data/wait_share"],
        )
        self._say_step(step, figures, metrics["timing/steps_per_second"])

    def _figures(self, loss, accuracy, tokens, rate, wait_share) -> list[str]:
        """What is known of loss, accuracy, speed, data and checkpoint."""
        figures = [f"loss {loss:.3f}", f"accuracy {accuracy:.3f}"]
        if rate:
            figures.append(f"{tokens:,.0f} tokens/s")
            if self.peak_share:
                figures.append(f"MFU {rate * self.peak_share:.1%}")
            figures.append(f"waiting for data {wait_share:.0%}")
        if self._last_saved:
            figures.append(self._last_saved)
        return figures

    def _left(self, step: int, rate: float | None) -> str:
        return f"{duration((self.total_steps - step) / rate)} left" if rate else ""

    def _say_step(self, step: int, figures: list[str], rate: float | None) -> None:
        self._said = self._clock()
        parts = [f"step {step:,}/{self.total_steps:,}", *figures, self._left(step, rate)]
        self.note("  ".join(filter(None, parts)))

    def saved(self, step: int) -> None:
        """`checkpoint_<step>` is whole."""
        self._last_saved = f"checkpoint_{step}"

    @contextlib.contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Shows what is done instead of a step, for as long as it takes."""
        self._bar.update(self._task, doing=f"{doing} …")
        try:
            yield
        finally:
            self._bar.update(self._task, doing="")
            self.speed.pause()

    def note(self, text: str) -> None:
        """Prints a line of its own, and has it in the log too."""
        logging.getLogger(__name__).info(text)
        self.console.print(text, soft_wrap=True, markup=False, emoji=False)


class _Bar(rich.progress.Progress):
    """A bar with figures under it, which a narrow terminal breaks into lines."""

    figures = ""

    def get_renderables(self) -> Iterator[rich.console.RenderableType]:
        """What is drawn."""
        yield from super().get_renderables()
        if self.figures:
            yield rich.text.Text(self.figures)


def duration(seconds: float) -> str:
    """Seconds as `1d 2h`, `3h 04m`, `5m 06s` or `7s`."""
    seconds = int(seconds)
    for unit, letter, lower, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if seconds >= unit:
            return f"{seconds // unit}{letter} {seconds % unit // lower:02d}{below}"
    return f"{seconds // 60}m {seconds % 60:02d}s" if seconds >= 60 else f"{seconds}s"
