"""What the compiler measures of a train step, and the time and money that follow from it.

  price = Price(figures, tpu_slices.find("v4-8"), steps=1_000_000)
  price.steps_per_second, price.mfu, price.hours, price.chip_hours

A step takes at least as long as the chips need for the model's arithmetic at their peak, and as
their memory needs to read and write all arrays once (the roofline). The compiler's own cycle count
is above that; it includes the collectives as it estimates them. None of these includes time lost to
the host, to evaluations and to checkpoints.
"""

import dataclasses
from collections.abc import Mapping

from preflight.aot.tpu_slices import GIB, Chip, Slice


@dataclasses.dataclass(frozen=True)
class Figures:
    """Measures of one step on one device of the slice.

    Args:
      cycles: the compiler's estimate, loop bodies counted as often as they run.
      argument_gib: parameters, optimizer state and batch.
      parameter_gib: parameters alone.
      optimizer_gib: optimizer state alone.
      peak_gib: the peak of all live arrays, arguments included.
      temp_gib: memory reserved for temporary arrays; not all of it need be live at once.
      code_gib: the program.
      flops: of the model's arithmetic on all devices, see `t5x.monitoring.flops`.
      rows: sequences a step on all devices.
      tokens: inputs and targets a step on all devices.
      compile_seconds: of XLA.
      trace_seconds: of Python, to lower the step.
      collectives: bytes of results by kind.
      costliest: instructions by cycles, see `hlo.Program.costliest`.
      cached: files that were added to the compilation cache.
      kernels: FLOP and bytes of kernels on one device, see `hlo.Program.kernels`.
    """

    cycles: int
    argument_gib: float
    parameter_gib: float
    optimizer_gib: float
    peak_gib: float
    temp_gib: float
    code_gib: float
    flops: float
    rows: int
    tokens: int
    compile_seconds: float
    trace_seconds: float
    collectives: Mapping[str, float]
    costliest: list[tuple[int, int, str, str]]
    cached: tuple[str, ...] = ()
    kernels: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def kernel_seconds(self, chip: Chip) -> float:
        """Return the least time of the kernels, which the cycles do not include."""
        return max(
            self.kernels.get("flops", 0.0) / chip.peak_flops * chip.devices,
            self.kernels.get("bytes", 0.0) / chip.bandwidth * chip.devices,
        )

    def seconds(self, chip: Chip) -> float:
        """Return the time of a step by the compiler's cycles, kernels at their least."""
        return self.cycles / chip.clock + self.kernel_seconds(chip)

    @property
    def used_gib(self) -> float:
        """All memory that the step needs on a device."""
        return max(self.peak_gib, self.argument_gib) + self.code_gib

    @property
    def activation_gib(self) -> float:
        """The peak of the step's own arrays, gradients included."""
        return max(self.peak_gib - self.argument_gib, 0.0)


class Price:
    """The cost of `steps` steps of these figures on `tpu`.

    Attributes:
      compiler_seconds: a step, by the compiler's cycles.
      arithmetic_seconds: a step, by the model's FLOPs at the chips' peak.
      memory_seconds: a step, by the memory's traffic at its bandwidth.
      steps_per_second: expected.
      mfu: model FLOPs utilization, the share of the chips' peak.
      hours: until the last step.
      chip_hours: the same for all chips.
      tokens_per_second: inputs and targets that the hosts have to prepare.
    """

    def __init__(self, figures: Figures, tpu: Slice, steps: float):
        # The state is read and written; what the step computes is written and read.
        traffic = 2 * GIB * (figures.argument_gib + figures.activation_gib)
        self.compiler_seconds = figures.seconds(tpu.chip)
        self.arithmetic_seconds = figures.flops / tpu.peak_flops
        self.memory_seconds = traffic / (tpu.chip.bandwidth / tpu.chip.devices)
        seconds = max(self.compiler_seconds, self.roofline_seconds)
        self.steps_per_second = 1 / seconds
        self.mfu = self.arithmetic_seconds / seconds
        self.hours = steps * seconds / 3600
        self.chip_hours = self.hours * tpu.chips
        self.tokens_per_second = figures.tokens / seconds

    @property
    def roofline_seconds(self) -> float:
        """The least time of a step."""
        return max(self.arithmetic_seconds, self.memory_seconds)
