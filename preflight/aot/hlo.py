"""The cost of an optimized program, read from its text: cycles, and traffic between devices.

XLA's own `cost_analysis` counts the body of a loop once. Here each computation counts as often as
it is called. A `while` counts by its trip count, from the compiler's note or the loop's condition;
if that is not a constant, a loop in a scope named `once` counts once, as for usual data. For a
conditional the costliest branch counts. Branches in a scope named `fallback`, which run only where
the usual way fails, count only with `fallbacks`.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator

from common.errors import UserError

_HEAD = re.compile(r"(ENTRY )?%(\S+) \(.*\{$")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%(\S+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$")
# The compiler estimates some instructions of a v6e at 2^63 - 1 cycles: 19 digits, not an estimate.
_CYCLES = re.compile(r'"estimated_cycles":"(\d{1,18})"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CALLS = re.compile(r"(?:calls|to_apply|body|condition)=%([^\s,)]+)")
_BRANCHES = re.compile(
    r"branch_computations=\{[^}]*\}|true_computation=%[^\s,]+, false_computation=%[^\s,]+"
)
_TRIPS = re.compile(r'known_trip_count"?[:=]\s*\{"?n"?[:=]\s*"?(\d+)')
_CONDITION = re.compile(r"condition=%([^\s,]+)")
_CONSTANT = re.compile(r"[su]32\[\]\S* constant\((\d+)\)")
FALLBACK = "/fallback/"
_ONCE = re.compile(r'op_name="[^"]*\bonce\b')
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
# The devices of a group: [groups,devices]<=…, {{0,1},…}, or the named axes of a mesh.
_GROUPS = re.compile(r"replica_groups=(?:\[\d+,(\d+)\]<=|\{\{([\d,]+)\}|mesh\[(.*?)\] \{(.*?)\})")
# Bytes that a device receives for a byte of the result, in a group of n (Chan et al. 2007).
_RECEIVED = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: n - 1,
    "all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1,
}


class Program:
    """An optimized HLO module, as text with a schedule."""

    def __init__(self, text: str, fallbacks: bool = False):
        self._fallbacks = fallbacks
        self.computations: dict[str, list[str]] = {}
        self._totals: dict[str, int] = {}
        self.entry = name = ""
        for line in text.splitlines():
            if head := _HEAD.match(line):
                name = head[2]
                self.entry = name if head[1] else self.entry
                self.computations[name] = []
            elif name and line.startswith(" "):
                self.computations[name].append(line)

    def cycles(self) -> int:
        """Return the estimated cycles of one run on one device, or raise UserError."""
        total = sum(cycles for cycles, *_ in self._costs())
        if not total:
            why = "the compiled program carries no estimated_cycles"
            raise UserError(why=why, to_set="compile for a TPU")
        return total

    def costliest(self, count: int) -> list[tuple[int, int, str, str]]:
        """Return instructions as (cycles of all runs, runs, name, name in the source), sorted."""
        return sorted(self._costs(), reverse=True)[:count]

    def _costs(self) -> Iterator[tuple[int, int, str, str]]:
        for line, times in self._lines():
            if match := _CYCLES.search(line):
                name = line.split(" = ")[0].strip().removeprefix("ROOT ")
                source = _OP_NAME.search(line)
                yield int(match[1]) * times, times, name, source[1] if source else ""

    def collectives(self) -> dict[str, float]:
        """Return the bytes of the results of collective operations on one device, by kind."""
        sizes: Counter[str] = Counter()
        for kind, size, _ in self._collectives():
            sizes[kind] += size
        return dict(sizes)

    def received(self) -> float:
        """Return the bytes that one device must receive from others in one run."""
        return sum(size * _RECEIVED[kind](n) for kind, size, n in self._collectives())

    def _collectives(self) -> Iterator[tuple[str, int, int]]:
        """Yield the kind, the bytes of all its results on a device, and the devices of a group."""
        for line, times in self._lines():
            match = _INSTRUCTION.match(line)
            if match and (kind := match[3].removesuffix("-start")) in _RECEIVED:
                size = _bytes(match[2])
                # The result of an asynchronous gather or permutation includes its operand.
                if match[3] in ("all-gather-start", "collective-permute-start"):
                    size = max(map(_bytes, re.findall(r"\w+\[[\d,]*\]", match[2])))
                yield kind, size * times, _group_size(line)

    def _lines(self) -> Iterator[tuple[str, int]]:
        """Yield each line and how often it runs in one run of the program."""
        for computation, times in self.runs.items():
            for line in self.computations[computation]:
                yield line, times

    @functools.cached_property
    def runs(self) -> Counter[str]:
        """How often each computation runs in one run of the program."""
        runs: Counter[str] = Counter()

        def visit(name: str, times: int) -> None:
            runs[name] += times
            for callee, trips in self._callees(name):
                visit(callee, times * trips)

        visit(self.entry, 1)
        return runs

    def _total(self, name: str) -> int:
        """Return the cycles of one run of a computation and of all it calls."""
        if name not in self._totals:
            lines = self.computations[name]
            cycles = sum(int(n) for line in lines for n in _CYCLES.findall(line))
            called = sum(trips * self._total(callee) for callee, trips in self._callees(name))
            self._totals[name] = cycles + called
        return self._totals[name]

    def _callees(self, name: str) -> Iterator[tuple[str, int]]:
        for line in self.computations[name]:
            trips = self._trips(line) if " while(" in line else 1
            called = _CALLS.findall(line)
            if branches := _BRANCHES.search(line):
                named = re.findall(r"%([^\s,{}]+)", branches[0])
                counted = [b for b in named if self._fallbacks or not self._is_fallback(b)]
                called.append(max(counted or named, key=self._total))
            yield from ((callee, trips) for callee in called if callee in self.computations)

    def _is_fallback(self, name: str) -> bool:
        return any(FALLBACK in line for line in self.computations[name])

    def _trips(self, line: str) -> int:
        if match := _TRIPS.search(line):
            return int(match[1])
        match = _CONDITION.search(line)
        rows = self.computations[match[1]] if match else []
        # JAX's scans count from 0 to a constant in the condition.
        bounds = {int(n) for row in rows for n in _CONSTANT.findall(row)}
        if len(bounds) != 1 and _ONCE.search(line):
            return 1
        if len(bounds) != 1:
            raise ValueError(f"The trip count of a loop is unknown: {line.strip()[:200]}")
        return bounds.pop()


def _bytes(shape: str) -> int:
    """Return the size of all arrays of a shape, like `(bf16[4,2]{1,0}, f32[2]{0})`."""
    bits = (
        math.prod(map(int, filter(None, dims.split(",")))) * _bits(dtype)
        for dtype, dims in _ARRAY.findall(shape)
    )
    return sum(bits) // 8


def _bits(dtype: str) -> int:
    """Return the bits of a number, which the name of its type has: 16 of bf16, 8 of f8e4m3fn."""
    if dtype == "pred":
        return 8
    bits = re.match("[a-z]+([0-9]+)", dtype)
    return int(bits[1]) if bits else 0  # a token holds nothing


def _group_size(line: str) -> int:
    """Return the devices that take part in a collective together; 2 where they are not named."""
    match = _GROUPS.search(line)
    if not match:
        return 2
    size, devices, mesh, axes = match.groups()
    if size:
        return int(size)
    if devices:
        return devices.count(",") + 1
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", mesh))
    return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", axes))
