"""From the compiler's figures to time and money.

  p = price(figures, slices.find("v4-8"), steps=1_000_000)
  p.steps_per_second, p.mfu, p.hours, p.chip_hours

A step takes at least as long as the chips need for the model's arithmetic at their peak, and as
their memory needs to give and take all arrays once (the roofline). The compiler's own count of
cycles stands above that, the wires' time as it estimates it among them. What neither has: time
lost to the host, to evaluations and to checkpoints.
"""

import dataclasses

from preflight.aot.compiler import Figures
from preflight.aot.tpu_slices import GIB, Slice


@dataclasses.dataclass(frozen=True)
class Price:
    """What training costs.

    Attributes:
      compiler_seconds: a step, by the compiler's cycles.
      arithmetic_seconds: a step, of the model's FLOPs at the chips' peak.
      memory_seconds: a step, of the memory's traffic at its bandwidth.
      steps_per_second: expected.
      mfu: share of the chips' peak that does the model's arithmetic.
      hours: to the end.
      chip_hours: of all chips.
      tokens_per_second: that the hosts have to prepare, inputs and targets.
    """

    compiler_seconds: float
    arithmetic_seconds: float
    memory_seconds: float
    steps_per_second: float
    mfu: float
    hours: float
    chip_hours: float
    tokens_per_second: float

    @property
    def roofline_seconds(self) -> float:
        """No step is shorter."""
        return max(self.arithmetic_seconds, self.memory_seconds)


def price(figures: Figures, tpu: Slice, steps: float) -> Price:
    """The price of `steps` steps on `tpu`."""
    counted = figures.seconds(tpu.chip)
    arithmetic = figures.flops / tpu.peak_flops
    memory = traffic(figures) / (tpu.chip.bandwidth / tpu.chip.devices)
    seconds = max(counted, arithmetic, memory)
    hours = steps * seconds / 3600
    return Price(
        compiler_seconds=counted,
        arithmetic_seconds=arithmetic,
        memory_seconds=memory,
        steps_per_second=1 / seconds,
        mfu=arithmetic / seconds,
        hours=hours,
        chip_hours=hours * tpu.chips,
        tokens_per_second=figures.tokens / seconds,
    )


def traffic(figures: Figures) -> float:
    """Bytes that one device moves at least: the state in and out, what lies between out and in."""
    return 2 * GIB * (figures.argument_gib + figures.activation_gib)
