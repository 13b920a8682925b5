"""The examples of a virtual shard: of one pipeline, or drawn from several at rates by step.

A task, and a mixture of constant rates, is one pipeline. A mixture whose rates change has a
pipeline for each of its parts, and draws each example when a row needs it, because only then the
step is known. So a phase begins with its first step, except that the open rows of packing
may begin with examples of the phase before. A part keeps its place through all phases. It is opened
when its first example is drawn, and read no further where its rate is 0.
"""

import io
import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import seqio
import tensorflow as tf

from common.errors import UserError
from t5x.input_pipeline.packing import Arrays
from t5x.input_pipeline.pipeline import Pipeline

_BLOCK = 1024  # random numbers made at once
_DRAWS = ".draws.npz"
_ABOUT = ("draws", "opened", "ended")

Phases = Mapping[int, Mapping[str, float]]  # the share of each part, by the phase's first step


@runtime_checkable
class PhasedMixture(Protocol):
    """What a mixture adds to `seqio.Mixture` so that it can be read part by part.

    `phases` has the shares of its parts, tasks or mixtures by name; one phase for constant rates.
    """

    name: str
    phases: Phases

    def part_dataset(self, part: str, **settings: Any) -> tf.data.Dataset:
        """Return the dataset of a part, whose `get_dataset` has these `settings`."""


def phases_of(provider: seqio.Task | seqio.Mixture) -> Phases:
    """Return the phases of a mixture; a task, or a mixture without phases, has none."""
    return provider.phases if isinstance(provider, PhasedMixture) else {}


def names_of(
    provider: seqio.Task | seqio.Mixture, split: str, held: Sequence[str] = ()
) -> list[str]:
    """Return the names of a shard's pipelines: `provider`'s own, or one for each of its parts.

    A mixture is read part by part if its rates change, or if a part continues from a position that
    holds the pipelines `held`. Parts without the split are left out.
    """
    phases = phases_of(provider)
    continues_parts = provider.name not in held and not set(held).isdisjoint(phases.get(0, ()))
    if len(phases) < 2 and not continues_parts:
        return [provider.name]
    return [part for part in phases[0] if split in seqio.get_mixture_or_task(part).splits]


def check_steps(provider: seqio.Task | seqio.Mixture, steps: int) -> None:
    """Raise UserError if a phase of a mixture begins after the `steps` that are trained on it."""
    if beyond := [first for first in phases_of(provider) if first and first >= steps]:
        raise UserError(
            "TRAIN_STEPS",
            why=f"leaves {steps:,} steps on mixture {provider.name}, which has a phase from step "
            f"{beyond[0]:,} on",
            to_set="raise it, or let the phase begin earlier",
        )


def task_shares(
    provider: seqio.Task | seqio.Mixture, first: int = 0, end: int = 1
) -> dict[str, float]:
    """Return the share of the examples that each task gives, by name.

    If rates change, it is the mean over the mixture's steps from `first` to `end`.
    """
    phases = phases_of(provider)
    if len(phases) < 2:
        if not isinstance(provider, seqio.Mixture):
            return {provider.name: 1.0}
        return {t.name: provider.get_rate(t) / provider.total_rate for t in provider.tasks}
    end, means = max(end, first + 1), dict.fromkeys(phases[0], 0.0)
    for begin, after in itertools.pairwise([*sorted(phases), math.inf]):
        steps = max(min(after, end) - max(begin, first), 0)
        for part, share in phases[int(begin)].items():
            means[part] += share * steps / (end - first)
    shares: dict[str, float] = {}
    for part, mean in means.items():
        within = task_shares(seqio.get_mixture_or_task(part))
        shares |= {task: mean * share for task, share in within.items()}
    return shares


def shares_at(phases: Phases, step: int) -> Mapping[str, float]:
    """Return the share of each part at a step."""
    return phases[max(first for first in phases if first <= step)]


class MixedExamples:
    """The examples of `parts`, datasets by name, drawn by `phases` if there are several.

    `key` is (seed, index of the shard): the part of the n-th example is a function of it, of n and
    of the step. `filler` fills up the shorter examples of a chunk.
    """

    def __init__(
        self,
        parts: Mapping[str, tf.data.Dataset],
        phases: Phases | None = None,
        key: tuple[int | None, int] = (0, 0),
        filler: int = 0,
    ):
        self._pipelines = {name: Pipeline(dataset) for name, dataset in parts.items()}
        self._phases, self._filler = phases or {}, filler
        self._key = (zlib.crc32(str(key[0]).encode()), key[1])
        self._draws = 0
        self._ended: set[str] = set()
        self._chunks: dict[str, Arrays] = {}  # {pipeline: what is left of its last chunk}
        self._block: tuple[int, np.ndarray] = (-1, np.empty(0))

    @property
    def names(self) -> list[str]:
        """The names of the pipelines."""
        return list(self._pipelines)

    def take(self, step: int, n: int) -> Arrays | None:
        """Return examples for the rows of a step, [k, …] of each feature, None at the end.

        One pipeline gives as many as it has at hand, several give at most `n`.
        """
        if len(self._pipelines) == 1:
            return self._chunk(self.names[0])
        taken: list[Arrays] = []
        shares = shares_at(self._phases, step)
        while len(taken) < n and (part := self._drawn(shares)):
            if (example := self._example(part)) is None:
                self._ended.add(part)
            else:
                taken.append(example)
        return self._stacked(taken) if taken else None

    def _drawn(self, shares: Mapping[str, float]) -> str | None:
        """Return the part of the next example, None if all that have a share have ended."""
        left = {n: shares[n] for n in self._pipelines if shares[n] and n not in self._ended}
        if not left:
            return None
        block, place = divmod(self._draws, _BLOCK)
        if block != self._block[0]:
            made = np.random.SeedSequence((*self._key, block)).generate_state(_BLOCK, np.uint64)
            self._block = (block, made / 2.0**64)
        self._draws += 1
        rest = self._block[1][place] * sum(left.values())
        for name, share in left.items():
            rest -= share
            if rest < 0:
                return name
        return name

    def _example(self, part: str) -> Arrays | None:
        if (chunk := self._chunk(part)) is None:
            return None
        if len(next(iter(chunk.values()))) > 1:
            self._chunks[part] = {name: values[1:] for name, values in chunk.items()}
        return {name: values[0] for name, values in chunk.items()}

    def _chunk(self, part: str) -> Arrays | None:
        return self._chunks.pop(part, None) or self._pipelines[part].next()

    def _stacked(self, examples: Sequence[Arrays]) -> Arrays:
        """Return [n, …] of each feature, each example filled up to the longest."""
        stacked = {}
        for name, first in examples[0].items():
            values = [example[name] for example in examples]
            shape = np.max([value.shape for value in values], axis=0)
            stacked[name] = np.full([len(values), *shape], self._filler, first.dtype)
            for i, value in enumerate(values):
                stacked[name][i][tuple(map(slice, value.shape))] = value
        return stacked

    def write(self, path: str) -> None:
        """Write the position to `path`, of several pipelines to `path`-<name> each."""
        if len(self._pipelines) == 1:
            self._pipelines[self.names[0]].write(path)
            return
        opened = [name for name, pipeline in self._pipelines.items() if pipeline.is_open]
        for name in opened:
            self._pipelines[name].write(f"{path}-{name}")
        about = {"opened": np.array(opened, str), "ended": np.array(sorted(self._ended), str)}
        state = {f"{part}/{k}": v for part, chunk in self._chunks.items() for k, v in chunk.items()}
        write_arrays(path + _DRAWS, {**about, "draws": np.array(self._draws), **state})

    def read(self, path: str, held: Sequence[str]) -> None:
        """Move to the position at `path`, which holds the pipelines `held`; others begin.

        Raise the errors of `Pipeline.read`.
        """
        one = len(held) == 1
        state = {} if one else read_arrays(path + _DRAWS)
        opened = held if one else state["opened"].tolist()
        for name, pipeline in self._pipelines.items():
            if name in opened:
                pipeline.read(path if one else f"{path}-{name}")
            else:
                pipeline.begin_again()
        self._draws = int(state.get("draws", 0))
        self._ended = set() if one else set(state["ended"].tolist())
        self._chunks = {}
        for place in state.keys() - set(_ABOUT):
            part, _, name = place.rpartition("/")
            self._chunks.setdefault(part, {})[name] = state[place]


def write_arrays(path: str, arrays: Arrays) -> None:
    """Write arrays to a file that may be remote."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # taken for allow_pickle
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content.getvalue())


def read_arrays(path: str) -> Arrays:
    """Return what `write_arrays` wrote."""
    with tf.io.gfile.GFile(path, "rb") as file, np.load(io.BytesIO(file.read())) as arrays:
        return dict(arrays)
