"""Monitoring settings: metric writers, sentences to fill in, and an expected loss.

watch.Watch:                                             # in a gin file
  writers = ('tensorboard', 'jsonl')
  infill_sentences = ('Copiii merg la <extra_id_0>.',)
  infill_period = 1000
  expected_loss = {0: 8.15, 100: 4.83}
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Watch:
    """Settings of the output of a run in addition to its progress."""

    writers: Sequence[Any] = ("tensorboard",)  # names or factories, see `monitoring.metric_writers`
    # Sentences with gaps, <extra_id_0>, …; see `inference.filling`.
    infill_sentences: Sequence[str] = ()
    # Steps, rounded up to the next trigger; None: at every evaluation.
    infill_period: int | None = None
    expected_loss: Mapping[int, float] | None = None  # {step: loss of a good run, nats per token}
    expected_loss_task: str | None = None  # the task that it was measured with; None: every task

    def known_losses(self, tasks: Iterable[str]) -> dict[int, float]:
        """Return the expected losses if one of `tasks` has them; a copied recipe may have none."""
        applies = self.expected_loss_task in (None, *tasks)
        return dict(self.expected_loss or {}) if applies else {}

    def reference(self, step: int, task: str) -> str:
        """Return the task's expected loss nearest to `step` as a note, empty if none is known."""
        if not (expected := self.known_losses([task])):
            return ""
        at = min(expected, key=lambda measured: (abs(measured - step), measured))
        return f"  (expected {expected[at]:.3f} at step {at:,})"

    def fills_in(self, step: int, before: int, evaluates: bool) -> bool:
        """Return whether sentences are due at a trigger at `step`, after the last at `before`."""
        if not self.infill_sentences:
            return False
        if self.infill_period is None:
            return evaluates
        return step // self.infill_period > before // self.infill_period
