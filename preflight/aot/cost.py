"""What the compiler measures of a train step, and the time and money that follow from it.

A step takes at least as long as the chips need for the model's arithmetic at their peak, as their
memory needs to read and write all arrays once, and as their links need for what each chip receives
from others (the roofline). The compiler's own cycle count is above that and includes collectives as
it estimates them. None of these includes time lost to the host, to evaluations and to checkpoints.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from preflight.aot.slices import GIB, Chip, Slice


@dataclasses.dataclass(frozen=True)
class Figures:
    """Measures of one step on one device of the slice; memory in GiB."""

    argument_gib: float  # parameters, optimizer state and batch
    parameter_gib: float
    optimizer_gib: float
    peak_gib: float  # size of all live arrays, arguments included
    temp_gib: float  # reserved for temporary arrays; not all of it need be live at once
    code_gib: float
    flops: float  # the model's arithmetic on all devices, see `t5x.monitoring.flops`
    rows: int  # sequences a step on all devices
    tokens: int  # inputs and targets a step on all devices
    compile_seconds: float  # time of XLA
    trace_seconds: float  # time of Python, to lower the step
    cycles: int = 0  # the compiler's estimate, loop bodies counted as often as they run
    # Bytes of results of collectives by kind.
    collectives: Mapping[str, float] = dataclasses.field(default_factory=dict)
    costliest: Sequence[tuple[int, int, str, str]] = ()  # see `hlo.Program.costliest`
    received: float = 0.0  # bytes that collectives bring to a device
    cached: tuple[str, ...] = ()  # files that were added to the compilation cache
    timed_seconds: float = 0.0  # time of a step that was run, see `preflight.here`
    timed_rows: int = 0  # rows of the step that was run

    def seconds(self, chip: Chip) -> float:
        """Return the time of a step: as timed, else by the compiler's cycles."""
        return self.timed_seconds or self.cycles / chip.clock

    @property
    def used_gib(self) -> float:
        """All memory that the step needs on a device."""
        return max(self.peak_gib, self.argument_gib) + self.code_gib

    @property
    def activation_gib(self) -> float:
        """The peak of the step's own arrays, gradients included."""
        return max(self.peak_gib - self.argument_gib, 0.0)


class Price:
    """What `steps` steps with these figures cost on `tpu`; each `..._seconds` is for one step."""

    def __init__(self, figures: Figures, tpu: Slice, steps: float):
        # The state is read and written; what the step computes is written and read.
        traffic = 2 * GIB * (figures.argument_gib + figures.activation_gib)
        self.compiler_seconds = figures.seconds(tpu.chip)
        self.arithmetic_seconds = figures.flops / tpu.peak_flops
        self.memory_seconds = traffic / (tpu.chip.bandwidth / tpu.chip.devices)
        links = tpu.link_bandwidth / tpu.chip.devices
        self.communication_seconds = figures.received / links if links else 0.0
        bounds = {
            "arithmetic": self.arithmetic_seconds,
            "memory": self.memory_seconds,
            "communication": self.communication_seconds,
        }
        self.bound = max(bounds, key=bounds.__getitem__)
        self.roofline_seconds = bounds[self.bound]  # the least
        seconds = max(self.compiler_seconds, self.roofline_seconds)
        self.steps_per_second = 1 / seconds
        self.mfu = self.arithmetic_seconds / seconds  # model FLOPs utilization
        self.hours = steps * seconds / 3600
        self.chip_hours = self.hours * tpu.chips
        self.tokens_per_second = figures.tokens / seconds  # tokens that the hosts have to prepare
