"""Change a checkpoint together with its vocabulary: trim or extend its rows into a new run.

    change = VocabularyChange(old_model, new_model, sources)      # of vocabulary.trim or .extend
    checks = write_run("runs/mt5_base", change, Path("runs/ro_mt5_base"))

writes `runs/ro_mt5_base/` with `checkpoint_<step>`, `config.gin`, `vocabulary.model` and
`vocabulary.rows.json`; the trainer resumes from it and the converter publishes it. The optimizer's
moments of the embeddings change with them. Only one array is in memory at a time.
"""

import argparse
import dataclasses
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from common import arguments
from common.errors import UserError
from common.tables import CheckResult, judged, passed
from convert import weight_map
from convert.proof import verify
from convert.proof.same_ids import is_tie
from convert.run import rewrite
from convert.run.model_dir import VOCABULARY
from convert.sizes import T5Sizes
from t5x.checkpointing.lazy_array import LazyArray
from vocabulary import sentencepiece_model as spm
from vocabulary.check import check_vocabulary
from vocabulary.corpus import MODEL_HELP

# The axis of each parameter along which ids run.
_AXES = {"token_embedder/embedding": 0, "decoder/logits_dense/kernel": 1}


@dataclasses.dataclass(frozen=True)
class VocabularyChange:
    """Two models, and for each id of the new one the old ids from whose mean it starts."""

    old: spm.ModelProto
    new: spm.ModelProto
    sources: spm.Sources
    extra_ids: int = 0

    @property
    def old_ids(self) -> int:
        """Number of ids of the old vocabulary, with those that seqio adds."""
        return len(self.old.pieces) + self.extra_ids

    @property
    def rows(self) -> spm.Sources:
        """The sources of the embedding's rows: padded to a multiple of 128 with rows from unk."""
        unused = spm.round_up(len(self.sources)) - len(self.sources)
        return [*self.sources, *[(self.new.trainer_spec.unk_id,)] * unused]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command that changes a vocabulary."""
    add = parser.add_argument
    add("model", type=arguments.text, help=MODEL_HELP)
    add("--extra_ids", type=arguments.integer(0), default=0, help="100 for T5's own vocabulary")
    about = "the new model, or with --checkpoint the new run"
    add("--out", type=arguments.text, required=True, help=about)
    add("--checkpoint", help="a T5X run or checkpoint to change too; --out is then a new run")
    about = "the network if the checkpoint has no gin: t5_1_1/base, a .gin, or a .json"
    add("--network", help=about)


def check_out(args: argparse.Namespace) -> None:
    """Raise UserError if `args.out` cannot be written."""
    if args.checkpoint:
        arguments.check_output_folder("--out", args.out)
    else:
        arguments.check_output_file("--out", args.out)


def write(
    change: VocabularyChange, args: argparse.Namespace, texts: Iterable[str]
) -> tuple[str, list[CheckResult]]:
    """Write the model `args.out`, or with `args.checkpoint` the run; return the model and checks.

    Raise UserError as `write_run`, and if words of `texts` with kept pieces change their tokens.
    """
    checks = [check_same_pieces(change.old, change.new, change.sources, texts)]
    if not passed(checks):
        raise UserError(
            f"nothing was written, since words are tokenized differently: {checks[0].figure}"
        )
    path = args.out
    if args.checkpoint:
        path = os.path.join(args.out, VOCABULARY)
        checks += write_run(args.checkpoint, change, Path(args.out), args.network)
    else:
        _write_vocabulary(change, path)
    return path, checks + check_vocabulary(path, len(change.rows))


def check_same_pieces(
    old: spm.ModelProto, new: spm.ModelProto, sources: spm.Sources, texts: Iterable[str]
) -> CheckResult:
    """Check that words whose pieces are all kept, and use no new piece, are tokenized as before.

    `sources` are the old ids of each new id, several for a new piece. Each word is checked once.
    """
    name = "kept pieces tokenize words as before"
    before, after = spm.processor(old), spm.processor(new)
    kept = {ids[0] for ids in sources if len(ids) == 1}
    words = {word for text in texts for word in text.split()}
    same = 0
    for word in sorted(words):
        wanted, new_ids = before.encode(word), after.encode(word)
        if not kept.issuperset(wanted) or any(len(sources[i]) > 1 for i in new_ids):
            continue
        found = [sources[i][0] for i in new_ids]
        if found != wanted and not is_tie(wanted, found, before.id_to_piece):
            return judged(name, False, f"{word[:80]!r} was {wanted} and is {found}")
        same += 1
    return judged(name, True, f"{same:,} of {len(words):,}; the others use changed pieces")


def _write_vocabulary(change: VocabularyChange, path: str) -> None:
    spm.write_model(change.new, path)
    with open(os.path.splitext(path)[0] + ".rows.json", "w", encoding="utf-8") as file:
        json.dump(change.sources, file)


def write_run(
    checkpoint: str, change: VocabularyChange, out: Path, network: str | None = None
) -> list[CheckResult]:
    """Write the run; it appears complete and verified, or not at all.

    `checkpoint` is a run, whose last checkpoint is used, or one checkpoint, local or on gs://;
    `network` is as `convert --config`, if there is no gin beside it. Raise UserError if the
    checkpoint is of another network or vocabulary, `out` is a run already, the disk is full, or
    logits of kept pieces differ.
    """
    old = rewrite.last_checkpoint(checkpoint, network)
    if not 0 <= old.sizes.vocab_size - change.old_ids < spm.SIZE_MULTIPLE:
        raise UserError(
            f"the vocabulary has {change.old_ids:,} ids and the embedding of {old.path} "
            f"{old.sizes.vocab_size:,} rows, so it was not trained with it: give its own "
            "vocabulary, and --extra_ids 100 if seqio adds the sentinels"
        )
    sizes = dataclasses.replace(old.sizes, vocab_size=len(change.rows))
    arrays = {name: _changed(name, array, change) for name, array in old.arrays.items()}
    with rewrite.staged_run(out) as temporary:
        written = rewrite.write_run(temporary, old.step, arrays, sizes)
        _write_vocabulary(change, str(temporary / VOCABULARY))
        same = same_logits(old.path, old.sizes, written, sizes, change.sources)
        if not passed([same]):
            raise UserError(f"nothing was written, since {same.check} fails: {same.figure}")
    return [_size("network before", old.sizes), _size("network after", sizes), same]


def _changed(name: str, array: LazyArray, change: VocabularyChange) -> LazyArray:
    """Return the array for the new ids, or itself if it has no rows of ids, as some moments."""
    owner = next((owner for owner in _AXES if f"/{owner}/" in f"/{name}/"), None)
    ids = range(change.old_ids, change.old_ids + spm.SIZE_MULTIPLE)
    if not owner or not any(length in ids for length in array.shape):
        return array
    axis = _AXES[owner] if len(array.shape) == 2 else 0
    shape = [*array.shape]
    shape[axis] = len(change.rows)
    fetch = lambda index: average_rows(array.read(), change.rows, axis)[index]
    return LazyArray(tuple(shape), array.dtype, fetch)


def average_rows(table: np.ndarray, sources: spm.Sources, axis: int = 0) -> np.ndarray:
    """Return the table for the new ids: each row is the mean of its old rows, in the table's dtype.

    The old ids run along `axis`: 0 for `token_embedder/embedding` [V, D], 1 for
    `decoder/logits_dense/kernel` [D, V]. Adafactor's and Adam's moments of these parameters change
    in the same way. The row of a single source is copied bit by bit.
    """
    new = np.take(table, [ids[0] for ids in sources], axis)
    old_rows, new_rows = np.moveaxis(table, axis, 0), np.moveaxis(new, axis, 0)
    for i, ids in enumerate(sources):
        if len(ids) > 1:
            mean = old_rows[list(ids)].astype(np.float32).mean(axis=0)
            new_rows[i] = mean.astype(table.dtype)
    return new


def _size(name: str, sizes: T5Sizes) -> CheckResult:
    counts = {tensor.sources[0]: math.prod(tensor.shape) for tensor in weight_map.tensors(sizes)}
    total, embeddings = sum(counts.values()), sum(counts.get(name, 0) for name in _AXES)
    detail = (
        f"{sizes.vocab_size:,} rows, {total / 1e6:,.1f} M parameters, "
        f"{embeddings / 1e6:,.1f} M of them embeddings ({embeddings / total:.0%})"
    )
    return judged(name, True, detail)


def same_logits(
    old_path: str, old_sizes: T5Sizes, new_path: str, new_sizes: T5Sizes, sources: spm.Sources
) -> CheckResult:
    """Check that both checkpoints give kept pieces the same logits, on a batch of kept pieces."""
    kept = np.array([new for new, old in enumerate(sources) if len(old) == 1 and new > 1])
    old_of = np.array([old[0] for old in sources])
    random_ids = verify.probe_batch(new_sizes)
    batch = {key: np.where(ids > 0, kept[ids % len(kept)], 0) for key, ids in random_ids.items()}
    old_batch = {key: old_of[ids] for key, ids in batch.items()}
    old = verify.trainer_logits([old_path], old_sizes, "float32", old_batch)[..., old_of[kept]]
    new = verify.trainer_logits([new_path], new_sizes, "float32", batch)[..., kept]
    difference, largest = float(np.abs(old - new).max()), float(np.abs(old).max())
    detail = f"{len(kept):,} pieces differ by {difference:.1e} at most, of {largest:.1f}"
    equal = difference <= verify.TOLERANCE * max(1.0, largest)
    return judged("logits of kept pieces equal", equal, detail)
