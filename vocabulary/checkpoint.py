"""A checkpoint made to fit a changed vocabulary: rows cut or added, written as a run of its own.

    change = Change(old_model, new_model, sources)           # of vocabulary.trim or .extend
    findings = write_run("runs/mt5_base", change, Path("runs/ro_mt5_base"))

writes `runs/ro_mt5_base/` with `checkpoint_<step>`, `config.gin`, `vocabulary.model` and the
`.rows.json` beside it, from which the trainer goes on and which the converter publishes. The
optimizer's moments of the embeddings change with them. One array is in memory at a time.
"""

import argparse
import dataclasses
import math
import os
from pathlib import Path

import numpy as np

from convert import atomic_output, from_hf, t5x_params, to_hf, weight_map
from convert.formats import t5x_checkpoint_writer
from convert.model_config import Sizes
from convert.proof import verify
from convert.proof.probe_batch import fixed_batch
from convert.run import model_dir
from convert.subprocesses import give_back_freed_memory, run_apart
from t5x.checkpointing.lazy_array import LazyArray
from t5x.checkpointing.reader import open_checkpoint
from vocabulary import proto, rows
from vocabulary.findings import Finding, passed, table

SIZE_MULTIPLE = 128
# The axis of each parameter along which ids run.
_AXES = {"token_embedder/embedding": 0, "decoder/logits_dense/kernel": 1}


@dataclasses.dataclass(frozen=True)
class Change:
    """Two models, and for each id of the new one the old ids whose mean it starts from."""

    old: proto.ModelProto
    new: proto.ModelProto
    sources: list[tuple[int, ...]]
    extra_ids: int = 0

    @property
    def rows(self) -> list[tuple[int, ...]]:
        """The sources of the embedding's rows: unused ones, from unk, up to a multiple of 128."""
        unused = -len(self.sources) % SIZE_MULTIPLE
        return [*self.sources, *[(self.new.trainer_spec.unk_id,)] * unused]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags by which a vocabulary's command takes a checkpoint along."""
    add = parser.add_argument
    add("--checkpoint", help="a T5X run or checkpoint to change too; --out is then a new run")
    add("--network", help="if no gin lies beside it: t5_1_1/base, a .gin, or a .json")


def write(change: Change, args: argparse.Namespace, cuts: Finding) -> tuple[str, list[Finding]]:
    """Writes the model `args.out`, or the run with `args.checkpoint`, if `cuts` says ok.

    Returns the model's path and what was found.

    Raises:
      ValueError: where words are cut otherwise than before, and as `write_run`.
    """
    if not passed([cuts]):
        raise ValueError(f"nothing was written, since words are cut in another way: {cuts.figure}")
    if args.checkpoint:
        out = Path(args.out)
        findings = write_run(args.checkpoint, change, out, args.network)
        return str(out / model_dir.VOCABULARY), [cuts, *findings]
    proto.write_model(change.new, args.out)
    rows.write_sources(os.path.splitext(args.out)[0] + ".rows.json", change.sources)
    return args.out, [cuts]


def write_run(
    checkpoint: str, change: Change, out: Path, network: str | None = None
) -> list[Finding]:
    """Writes the run; it appears whole and proved, or not at all.

    Args:
      checkpoint: a run, whose last checkpoint is taken, or one checkpoint, local or on gs://.
      change: of the vocabulary.
      out: the new run's folder, empty or not there.
      network: if no gin lies beside the checkpoint, as `convert --config` takes it.

    Raises:
      ValueError: where the checkpoint is of another network or vocabulary, `out` is a run already,
        the disk is full, or logits of kept pieces differ.
    """
    run = model_dir.find(checkpoint)
    step = max(run.checkpoints)
    path = run.checkpoints[step]
    before, arrays = _network(run, path, network, change), open_checkpoint(path)
    after = dataclasses.replace(before, vocab_size=len(change.rows))
    if model_dir.holds_run(out):
        raise ValueError(f"--out {out} holds a run already: name an empty folder.")
    changed = {name: _changed(name, array, change) for name, array in arrays.items()}
    atomic_output.check_ours(out)
    atomic_output.check_room(
        out.resolve().parent, sum(_nbytes(array) for array in changed.values())
    )
    with atomic_output.staged(out) as temporary:
        written = temporary / f"checkpoint_{step}"
        t5x_checkpoint_writer.write(written, changed)
        proto.write_model(change.new, str(temporary / model_dir.VOCABULARY))
        rows.write_sources(str(temporary / "vocabulary.rows.json"), change.sources)
        (temporary / model_dir.GIN_FILES[0]).write_text(from_hf.gin_of(after))
        give_back_freed_memory()
        proof = same_logits(path, before, str(written), after, change.sources)
        if not passed([proof]):
            raise ValueError(f"nothing was written, since {table([proof])}")
    return [_sizes("network before", before), _sizes("network after", after), proof]


def _network(run: model_dir.Run, path: str, given: str | None, change: Change) -> Sizes:
    sizes, _ = model_dir.network(run, given)
    tree = t5x_params.open_tree([path])
    sizes = dataclasses.replace(sizes, own_relative_bias=t5x_params.own_bias(tree))
    shapes = {name: tuple(array.shape) for name, array in tree.items()}
    weight_map.guard(weight_map.tensors(sizes), sizes, shapes)
    ids = len(change.old.pieces) + change.extra_ids
    if not 0 <= sizes.vocab_size - ids < SIZE_MULTIPLE:
        raise ValueError(
            f"the vocabulary has {ids:,} ids and the embedding of {path} {sizes.vocab_size:,} "
            "rows, so it was not trained with it: give its own vocabulary, and --extra_ids 100 "
            "where seqio adds the sentinels"
        )
    return sizes


def _changed(name: str, array: LazyArray, change: Change) -> LazyArray:
    """The array for the new ids, its values looked at; as it is where its rows are no ids."""
    owner = next((owner for owner in _AXES if f"/{owner}/" in f"/{name}/"), None)
    ids = len(change.old.pieces) + change.extra_ids
    shape, axis = list(array.shape), None
    if owner and any(ids <= length < ids + SIZE_MULTIPLE for length in shape):
        axis = _AXES[owner] if len(shape) == 2 else 0
        shape[axis] = len(change.rows)

    def fetch(index):
        values = array.read()
        if name.startswith("target/"):
            to_hf.check_values(name, values)
        if axis is not None:
            values = rows.average_rows(values, change.rows, axis)
        return values[index]

    return LazyArray(tuple(shape), array.dtype, fetch)


def _nbytes(array: LazyArray) -> int:
    return math.prod(array.shape) * array.dtype.itemsize


def _sizes(check: str, sizes: Sizes) -> Finding:
    counts = {tensor.source: math.prod(tensor.shape) for tensor in weight_map.tensors(sizes)}
    total, embeddings = sum(counts.values()), sum(counts.get(name, 0) for name in _AXES)
    figure = (
        f"{sizes.vocab_size:,} rows, {total / 1e6:,.1f} M parameters, "
        f"{embeddings / 1e6:,.1f} M of them embeddings ({embeddings / total:.0%})"
    )
    return Finding(check, "ok", figure)


def same_logits(
    old_path: str, before: Sizes, new_path: str, after: Sizes, sources: list[tuple[int, ...]]
) -> Finding:
    """Do both checkpoints give the kept pieces the same logits, on a batch of kept pieces?"""
    kept = np.array([new for new, old in enumerate(sources) if len(old) == 1 and new > 1])
    old_of = np.array([old[0] for old in sources])
    drawn = fixed_batch(after)
    batch = {key: np.where(ids > 0, kept[ids % len(kept)], 0) for key, ids in drawn.items()}
    old_batch = {key: old_of[ids] for key, ids in batch.items()}
    large = verify.is_large(before)
    old = run_apart(large, verify.trainer_logits, [old_path], before, "float32", old_batch)
    new = run_apart(large, verify.trainer_logits, [new_path], after, "float32", batch)
    old, new = old[..., old_of[kept]], new[..., kept]
    difference, largest = float(np.abs(old - new).max()), float(np.abs(old).max())
    figure = f"{len(kept):,} pieces differ by {difference:.1e} at most, of {largest:.1f}"
    equal = difference <= verify.TOLERANCE * max(1.0, largest)
    return Finding.of("logits of kept pieces equal", equal, figure)
