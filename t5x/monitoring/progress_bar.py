"""Shows the progress of a run: a bar on a terminal, lines elsewhere.

A terminal has a bar and, below it, loss, accuracy, learning rate, tokens a second, MFU, the share
of time spent waiting for data, and the last checkpoint. A log file or a pod gets these as a line at
every report, and once a minute between two reports.
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

from common.printable import printable
from common.waiting import waiting
from t5x.bad_steps import SKIPPED
from t5x.metrics import UNNORMALIZED_LOSS, unnormalized_loss
from t5x.monitoring.throughput import Rates, Throughput

_LINE_SECONDS = 60.0  # between two lines, where there is no terminal


class Progress:
    """Shows one run on stderr or another console; processes other than the first show nothing.

    `peak_share` is the MFU at one step a second, None if unknown; see `flops.peak_share`. Without a
    terminal a line is printed once a minute.
    """

    def __init__(
        self,
        total_steps: int,
        first_step: int,
        console: rich.console.Console | None = None,
        peak_share: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.total_steps, self.peak_share = total_steps, peak_share
        self._clock, self._printed = clock, clock()
        self.throughput, self._last_saved = Throughput(clock=clock), ""
        self.console = console or rich.console.Console(
            file=sys.stderr,
            quiet=jax.process_index() != 0,
            highlight=False,
            # Otherwise FORCE_COLOR, which Jupyter sets, would count as a terminal.
            force_terminal=sys.stderr.isatty(),
        )
        self._bar = _Bar(
            rich.progress.TextColumn("step {task.completed:,}/{task.total:,}"),
            rich.progress.BarColumn(bar_width=16),
            rich.progress.TextColumn("{task.fields[left]}"),
            rich.progress.TextColumn("[bold]{task.fields[doing]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._reported = first_step
        self._task = self._bar.add_task(
            "", total=total_steps, completed=first_step, left="", doing=""
        )

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def step(self, step: int, sums: Mapping[str, float] | None = None, waited: float = 0.0) -> None:
        """Show a finished step.

        `sums` are those of the step before, and `waited` are the seconds of waiting for data. Sums
        of a step that was skipped are not shown.
        """
        if not sums or sums.get(SKIPPED):
            self._bar.update(self._task, completed=step)
            return
        self.throughput.step(sums["target_positions"] + sums.get("input_positions", 0.0), waited)
        due = self._clock() - self._printed >= _LINE_SECONDS
        if not (self.console.is_terminal or due):
            return
        rates = self.throughput.rates()
        accuracy = float(sums["correct"]) / max(float(sums["target_tokens"]), 1.0)
        loss, rate = float(unnormalized_loss(sums)), sums.get("learning_rate")
        figures = self._figures(loss, accuracy, rate, rates)
        if not self.console.is_terminal:
            self._print_step(step, figures, rates)
        self._bar.figures = "  ".join(figures)
        self._bar.update(self._task, completed=step, left=self._left(step, rates))

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print the metrics of the steps since the last report."""
        names = ("timing/steps_per_second", "timing/tokens_per_second", "data/wait_share")
        rates = Rates(*(metrics[name] for name in names))
        loss, rate = metrics[UNNORMALIZED_LOSS], metrics.get("learning_rate")
        figures = self._figures(loss, metrics["accuracy"], rate, rates)
        self._print_step(step, [f"mean of {step - self._reported:,} steps:", *figures], rates)
        self._reported = step

    def returned(self, step: int) -> None:
        """Count the next report's steps from `step`, to which the run has gone back."""
        self._reported = step

    def _figures(
        self, loss: float, accuracy: float, rate: float | None, rates: Rates | None
    ) -> list[str]:
        # A loss that has exploded would push the other figures out of the line.
        text = f"{loss:.3f}" if abs(loss) < 1e4 else f"{loss:.3g}"
        figures = [f"loss {text}", f"accuracy {accuracy:.3f}"]
        if rate is not None:
            figures.append(f"learning rate {rate:.3g}")
        if rates:
            figures.append(f"{rates.tokens_per_second:,.0f} tokens/s")
            if self.peak_share:
                figures.append(f"MFU {rates.steps_per_second * self.peak_share:.1%}")
            figures.append(f"waiting for data {rates.wait_share:.0%}")
        return [*figures, self._last_saved] if self._last_saved else figures

    def _left(self, step: int, rates: Rates | None) -> str:
        steps = self.total_steps - step
        return f"{duration(steps / rates.steps_per_second)} left" if rates else ""

    def _print_step(self, step: int, figures: list[str], rates: Rates | None) -> None:
        self._printed = self._clock()
        parts = [f"step {step:,}/{self.total_steps:,}", *figures, self._left(step, rates)]
        self.note("  ".join(filter(None, parts)))

    def saved(self, step: int) -> None:
        """Show that `checkpoint_<step>` is complete."""
        self._last_saved = f"checkpoint_{step}"

    @contextlib.contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Show an activity between two steps; its time does not count for the throughput.

        Where there is no terminal, a line a minute names one that takes longer.
        """
        self._bar.update(self._task, doing=f"{doing} …")
        shown = self.console.is_terminal
        try:
            with contextlib.nullcontext() if shown else waiting(doing, _LINE_SECONDS, self.note):
                yield
        finally:
            self._bar.update(self._task, doing="")
            self.throughput.pause()

    def note(self, text: str) -> None:
        """Print a line, and log it."""
        logging.getLogger(__name__).info(text)
        self.console.print(printable(text), soft_wrap=True, markup=False, emoji=False)


class _Bar(rich.progress.Progress):
    """A bar with a line of figures below it, which a narrow terminal wraps."""

    figures = ""

    def get_renderables(self) -> Iterator[rich.console.RenderableType]:
        """Yield the bar, then the figures."""
        yield from super().get_renderables()
        if self.figures:
            yield rich.text.Text(self.figures)


def duration(seconds: float) -> str:
    """Return seconds as `1d 02h`, `3h 04m`, `5m 06s` or `7s`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02d}h"
    if hours:
        return f"{hours}h {minute:02d}m"
    return f"{minutes}m {second:02d}s" if minutes else f"{second}s"
