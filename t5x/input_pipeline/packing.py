"""Rows from examples: packed or padded as seqio's EncDecFeatureConverter does it, many at a time.

A *row* holds examples end to end. An example goes into the last row if each of its features fits
into the space left, else into a new row. After every max(lengths) examples a row is closed, full
or not, because seqio packs groups of so many. With several *open rows* it goes into that one of
the last so many in which it leaves the least space for targets (best fit), and there are no groups.

With inputs 6 and targets 6:

    inputs   [7 8 1] [5 1]        encoder_input_tokens   7 8 1 5 1 0
    targets  [3 1] [9 4 1]        encoder_segment_ids    1 1 1 2 2 0
                                  encoder_positions      0 1 2 0 1 0
                                  decoder_target_tokens  3 1 9 4 1 0
                                  decoder_input_tokens   0 3 0 9 4 0

seqio does this in a TensorFlow loop of some 30 operations per example, which takes longer than the
rest of the pipeline. Here a batch of rows takes a few numpy operations.
"""

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import seqio
import tensorflow as tf

from common.errors import UserError

Arrays = dict[str, np.ndarray]
SIDES = {"inputs": "encoder", "targets": "decoder"}
CHUNK = 64  # examples that a pipeline yields at once, since each time costs the switch of a thread


class PairRows:
    """Rows of a T5: of several pairs of inputs and targets with `pack`, else of one.

    Longer examples are cut to `lengths`; without `trim` they are a UserError that names `task`. In
    examples 0 is what fills them up. Examples are added to the last `open_rows` rows.
    """

    features: Iterable[str] = tuple(SIDES)
    filler = 0

    def __init__(
        self,
        lengths: Mapping[str, int],
        pack: bool,
        trim: bool = True,
        task: str = "the task",
        open_rows: int = 1,
    ):
        self._lengths = {feature: lengths[feature] for feature in self.features}
        self._pack, self._trim, self._task = pack, trim, task
        self._most_open = open_rows if pack else 0
        self._group = max(self._lengths.values()) if open_rows == 1 else sys.maxsize
        self.truncated = 0
        empty = {k: np.zeros([0, n], np.int32) for k, n in self._lengths.items()}
        zero = np.zeros([], np.int64)
        self.load({**empty, "row": np.zeros([0], np.int64), "opened": zero, "in_group": zero})

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned."""
        self._examples = {feature: state[feature] for feature in self._lengths}
        self._row = state["row"]  # row of each example, ascending, from the first row here
        self._opened = int(state["opened"])
        self._in_group = int(state["in_group"])
        self._spaces: deque[Sequence[int]] = deque(maxlen=self._most_open)  # left in open rows
        for row in range(self.complete, self._opened):
            examples = [values[self._row == row] for values in self._examples.values()]
            self._spaces.append(_left(self._lengths.values(), map(np.count_nonzero, examples)))

    def state(self) -> Arrays:
        """Return the complete state as arrays, for `load`."""
        counts = {"opened": self._opened, "in_group": self._in_group}
        arrays = {name: np.array(count, np.int64) for name, count in counts.items()}
        return {**self._examples, "row": self._row, **arrays}

    def examples(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Return batches {feature: int32 [n, any length]} of a task's examples.

        Raise UserError for a feature that is missing, or is not int32 [n].
        """
        spec = dataset.element_spec
        for name in self.features:
            if name not in spec or spec[name].dtype != tf.int32 or spec[name].shape.rank != 1:
                raise UserError(
                    f"task {self._task}",
                    why=f"gives {name!r} as {spec.get(name)}, but the model reads int32 [n]",
                    to_set="let the last of its preprocessors return it so",
                )
        if set(spec) != set(self.features):
            dataset = dataset.map(lambda x: {k: x[k] for k in self.features}, synchronous=True)
        return dataset.padded_batch(CHUNK, padding_values=self.filler)

    @property
    def complete(self) -> int:
        """Number of rows to which nothing can be added."""
        n_open = min(self._most_open, self._opened) if self._in_group else 0
        return self._opened - n_open

    def add(self, examples: Mapping[str, np.ndarray]) -> None:
        """Add `n` examples: int32 [n, any length] of each feature, filled up with 0."""
        fitted = self._cut(examples)
        sizes = [np.count_nonzero(ids, axis=1).tolist() for ids in fitted.values()]
        places = []
        for size in zip(*sizes, strict=True):
            places.append(self._place(size))
            self._in_group = (self._in_group + 1) % self._group
        row = np.concatenate([self._row, np.array(places, np.int64)])
        order = slice(None) if self._most_open < 2 else np.argsort(row, kind="stable")
        self._row = row[order]
        for feature, values in self._examples.items():
            self._examples[feature] = np.concatenate([values, fitted[feature]])[order]

    def _place(self, size: Sequence[int]) -> int:
        """Return the row of the next example, whose features have these sizes."""
        if not self._in_group:
            self._spaces.clear()
        left = [_left(space, size) for space in self._spaces]
        fitting = [(space[::-1], i) for i, space in enumerate(left) if min(space) >= 0]
        if not fitting:
            self._opened += 1
            self._spaces.append(_left(self._lengths.values(), size))
            return self._opened - 1
        i = min(fitting)[1]
        self._spaces[i] = left[i]
        return self._opened - len(self._spaces) + i

    def _cut(self, examples: Mapping[str, np.ndarray]) -> Arrays:
        """Return the examples in the lengths of a row; count those that lose something."""
        fitted, is_cut = {}, np.zeros(len(next(iter(examples.values()))), bool)
        for feature, length in self._lengths.items():
            ids = examples[feature]
            fitted[feature] = np.zeros([len(ids), length], np.int32)
            fitted[feature][:, : ids.shape[1]] = ids[:, :length]
            is_cut |= ids[:, length:].any(1)
        if is_cut.any() and not self._trim:
            raise UserError(
                "TASK_FEATURE_LENGTHS",
                self._lengths,
                f"but an example of {self._task} is longer",
                "raise them, or set DatasetConfig.trim_output_features to True to cut it",
            )
        self.truncated += int(is_cut.sum())
        return fitted

    def end(self) -> None:
        """Close the last row: no example will follow."""
        self._in_group = 0

    def first(self, n: int) -> Arrays:
        """Return the first `n` complete rows as a model reads them, int32 [n, length]."""
        chosen = slice(np.searchsorted(self._row, n))
        if not self._pack:
            return unpacked(*(x[chosen] for x in self._examples.values()))
        batch: Arrays = {}
        for feature, side in SIDES.items():
            laid = concatenate(self._examples[feature][chosen], self._row[chosen], n)
            name = "encoder_input_tokens" if side == "encoder" else "decoder_target_tokens"
            names = (name, f"{side}_segment_ids", f"{side}_positions")
            batch |= zip(names, laid, strict=True)
        segments = batch["decoder_segment_ids"]
        shown = _shifted(batch["decoder_target_tokens"])
        batch["decoder_input_tokens"] = np.where(segments == _shifted(segments), shown, 0)
        batch["decoder_loss_weights"] = (batch["decoder_target_tokens"] != 0).astype(np.int32)
        return batch

    def drop(self, n: int) -> None:
        """Drop the first `n` complete rows."""
        remaining = slice(np.searchsorted(self._row, n), None)
        self._examples = {k: x[remaining] for k, x in self._examples.items()}
        self._row = self._row[remaining] - n
        self._opened -= n


class ConvertedRows:
    """Rows that a feature converter of the user's makes, which may be of any features."""

    truncated = 0  # seqio does not count them
    filler = 0

    def __init__(
        self, converter: seqio.FeatureConverter, lengths: Mapping[str, int], trim: bool = True
    ):
        self._converter, self._lengths, self._trim = converter, lengths, trim
        self._rows: Arrays = {}

    def examples(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Return batches of the converter's rows."""
        if self._trim:
            dataset = seqio.utils.trim_dataset(dataset, self._lengths, self._lengths)
        rows = self._converter(dataset, self._lengths).batch(8)
        none = lambda spec: np.zeros([0, *spec.shape[1:]], spec.dtype.as_numpy_dtype)
        self._rows = {name: none(spec) for name, spec in rows.element_spec.items()}
        return rows

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned."""
        self._rows = dict(state)

    def state(self) -> Arrays:
        """Return the rows."""
        return self._rows

    @property
    def complete(self) -> int:
        """Number of rows."""
        return len(next(iter(self._rows.values())))

    def add(self, examples: Mapping[str, np.ndarray]) -> None:
        """Add rows."""
        self._rows = {k: np.concatenate([v, examples[k]]) for k, v in self._rows.items()}

    def end(self) -> None:
        """Do nothing: all rows are complete."""

    def first(self, n: int) -> Arrays:
        """Return the first `n` rows."""
        return {k: v[:n] for k, v in self._rows.items()}

    def drop(self, n: int) -> None:
        """Drop the first `n` rows."""
        self._rows = {k: v[n:] for k, v in self._rows.items()}


# The rows that a shard has started and not given away, one class for each kind of model:
#
#   examples = iter(rows.examples(dataset))   # of a task's examples, many at a time
#   rows.add(next(examples))                  # puts them into rows; at the end `rows.end()`
#   batch = rows.first(8)                     # once rows.complete >= 8, as the model reads them
#   rows.drop(8)
#   other.load(rows.state())                  # all of it as arrays, a part of the data position
Rows: TypeAlias = PairRows | ConvertedRows


def unpacked(inputs: np.ndarray, targets: np.ndarray) -> Arrays:
    """Return rows of one example each, from int32 [n, I] and [n, T] padded with 0."""
    return {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": _shifted(targets),
        "decoder_loss_weights": (targets != 0).astype(np.int32),
    }


def _left(space: Iterable[int], size: Iterable[int]) -> tuple[int, ...]:
    """Return the space that an example of this size leaves, by feature."""
    return tuple(n - taken for n, taken in zip(space, size, strict=True))


def _shifted(rows: np.ndarray) -> np.ndarray:
    """Return each row shifted one to the right, with 0 in front."""
    shifted = np.zeros_like(rows)  # np.pad takes seven times as long
    shifted[:, 1:] = rows[:, :-1]
    return shifted


def concatenate(tokens: np.ndarray, row: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    """Put examples, int32 [k, L] padded with 0, end to end into `n` rows, ascending by example.

    Return ids, segment ids (from 1) and positions (from 0), int32 [n, L].
    """
    length = tokens.shape[1]
    counted = np.arange(length, dtype=np.int32)
    if len(tokens) == n:  # each row has one example, as of span corruption
        segments = (tokens != 0).astype(np.int32)
        return tokens, segments, counted * segments
    ids, segments, positions = np.zeros([3, n, length], np.int32)
    last, start, rank = -1, 0, 0
    # One example at a time: for rows of this length slices are cheaper than index arrays.
    sizes = np.count_nonzero(tokens, axis=1).tolist()
    for example, at, size in zip(tokens, row.tolist(), sizes, strict=True):
        if at != last:
            last, start, rank = at, 0, 0
        rank += size > 0
        place = slice(start, start + size)
        ids[at, place] = example[:size]
        segments[at, place] = rank
        positions[at, place] = counted[:size]
        start += size
    return ids, segments * (ids != 0), positions
