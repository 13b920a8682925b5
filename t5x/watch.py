"""How a run is watched: where its metrics go, and what shows whether it learns.

watch.Watch:                                             # in a gin file
  writers = ('tensorboard', 'jsonl')
  infill_sentences = ('Copiii merg la <extra_id_0>.',)
  infill_period = 1000
  expected_loss = {0: 8.15, 100: 4.83}
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t5x.inference import mask_filling
from t5x.monitoring import metric_writers


@dataclasses.dataclass(frozen=True)
class Watch:
    """What a user sees of a run beside its progress.

    Attributes:
      writers: of 'tensorboard', 'jsonl', 'wandb', or what makes a writer; see `writers`.
      infill_sentences: of the user's own, with <extra_id_0>, … for holes; see `infill`.
      infill_period: steps between fillings, at the next stop; None: at every evaluation.
      expected_loss: validation loss, in nats a token, by step, of a run known to be good.
    """

    writers: Sequence[Any] = ("tensorboard",)
    infill_sentences: Sequence[str] = ()
    infill_period: int | None = None
    expected_loss: Mapping[int, float] | None = None

    def check(self, model: Any, lengths: Mapping[str, int]) -> None:
        """Refuses, with a ValueError, what cannot be done with this model."""
        metric_writers.check_names(self.writers)
        mask_filling.check_sentences(self.infill_sentences, model.input_vocabulary, lengths)
        if self.infill_period is not None and self.infill_period < 1:
            raise ValueError(
                f"watch.Watch.infill_period is {self.infill_period}; set INFILL_PERIOD to at least "
                "1 step, or to None for every evaluation."
            )

    def reference(self, step: int) -> str:
        """What a good run's loss is nearest to `step`, as a note; empty where nothing is known."""
        if not self.expected_loss:
            return ""
        at = min(self.expected_loss, key=lambda known: (abs(known - step), known))
        return f"  (expected {self.expected_loss[at]:.3f} at step {at:,})"

    def fills_in(self, step: int, before: int, evaluates: bool) -> bool:
        """Whether sentences are due at a stop at `step`, the last time being at `before`."""
        if not self.infill_sentences:
            return False
        if self.infill_period is None:
            return evaluates
        return step // self.infill_period > before // self.infill_period
