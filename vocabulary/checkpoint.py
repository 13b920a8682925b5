"""Change a checkpoint together with its vocabulary: trim or extend its rows into a new run.

    change = pieces.change(kept_ids)                 # by vocabulary.trim or .extend
    checks = write_run("runs/mt5_base", change, Path("runs/ro_mt5_base"))

writes `runs/ro_mt5_base/` with `checkpoint_<step>`, `config.gin`, `vocabulary.model` (or an
encoder's `tokenizer/`) and `vocabulary.rows.json`. The trainer resumes from this run, and the
converter publishes it. The optimizer's moments of the embeddings and the bias of an encoder's
logits change with the embeddings. One array is in memory at a time. A change that could not be
published is refused first.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from common import arguments, tables
from common.embedding import ROW_MULTIPLE
from common.errors import UserError
from common.gin_reader import Bindings
from common.new_files import OVERWRITE_HELP, check_empty, check_new, staged_folder, write_files
from common.tables import WARNING, CheckResult, judged, passed
from convert import atomic_output, publishable, weight_map
from convert.formats.sentencepiece_model import read_model
from convert.proof import verify
from convert.proof.odd_texts import texts_of
from convert.proof.same_ids import is_tie
from convert.run import model_dir, rewrite
from convert.sizes import Sizes
from t5x.checkpointing.lazy_array import LazyArray
from tasks.look import signs
from tasks.look.lines import MOST_UNKNOWN
from vocabulary import corpus, files
from vocabulary.check import check_vocabulary
from vocabulary.coverage import joined_words
from vocabulary.pieces import Pieces, SentencePieces, Sources, VocabularyChange
from vocabulary.tokenizer_json import TokenizerPieces

# The axis of each parameter along which ids run.
_AXES = {"token_embedder/embedding": 0, "decoder/logits_dense/kernel": 1, "mlm_head/bias": 0}
VERIFIED_LINES = 20_000  # lines of each corpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command that changes a vocabulary."""
    add = parser.add_argument
    add("model", type=arguments.text, help=corpus.MODEL_HELP)
    about = "100 for T5's own vocabulary (default: what the gin of --checkpoint binds, else 0)"
    add("--extra_ids", type=arguments.integer(0), help=about)
    about = "the new model, or with --checkpoint the new run"
    add("--out", type=arguments.text, required=True, help=about)
    add("--checkpoint", help="a T5X run or checkpoint to change too; --out is then a new run")
    add("--overwrite", action="store_true", help=OVERWRITE_HELP)
    add("--dry_run", action="store_true", help="print the table, and write nothing")
    about = "the network if the checkpoint has no gin: t5_1_1/base, a .gin, or a .json"
    add("--network", help=about)


def check_out(args: argparse.Namespace) -> None:
    """Raise UserError if `args.out` cannot be written."""
    if args.checkpoint or os.path.isdir(args.out):
        arguments.check_output_folder("--out", args.out)
    else:
        arguments.check_output_file("--out", args.out)
    if args.checkpoint:
        check_empty(Path(args.out))
    elif not args.overwrite:
        check_new([args.out, _rows_file(args.out)], "--out")


def open_pieces(args: argparse.Namespace) -> Pieces:
    """Return the vocabulary `args.model`, or raise UserError.

    Without --extra_ids, the gin of --checkpoint tells how many seqio adds.
    """
    path = files.download(args.model)
    if folder := files.find_tokenizer(path):
        return TokenizerPieces(folder)
    extra_ids = args.extra_ids
    if extra_ids is None and args.checkpoint:
        bindings = Bindings.read(model_dir.open_run(args.checkpoint).gin() or "")
        extra_ids = bindings.of("SentencePieceVocabulary").get("extra_ids")
    return SentencePieces(read_model(files.find_model(path)), extra_ids or 0)


def finish(
    change: VocabularyChange, args: argparse.Namespace, samples: Mapping[str, Sequence[str]]
) -> int:
    """Write the new vocabulary or run, print the table of checks, and return the status.

    Args:
      change: the old and the new vocabulary.
      args: the flags of `add_arguments`. With `dry_run` nothing is written.
      samples: lines by the name of their corpus.

    Raises:
      UserError: words of kept pieces are tokenized differently, or as in `write_run`.
    """
    samples = {name: corpus.sample_lines(lines, VERIFIED_LINES) for name, lines in samples.items()}
    texts = list(itertools.chain.from_iterable(samples.values()))
    if not texts:  # texts are made of the old pieces, so that every language is covered
        texts = texts_of([name for name in change.old.names if name])
    same = check_same_pieces(change, texts)
    if not passed([same]):
        raise UserError(
            why=f"words are tokenized differently, so nothing was written: {same.figure}"
        )
    checks = [_counts(change), *_measured(change, samples), same]
    path = args.out
    if args.checkpoint:
        path = os.path.join(args.out, change.new.in_run)
        checks += write_run(args.checkpoint, change, Path(args.out), args.network, args.dry_run)
    elif not args.dry_run:
        _write_vocabulary(change, path, args.overwrite)
    if not args.dry_run:
        checks += check_vocabulary(path, len(change.rows))
        print(f"wrote {args.out}")
    return tables.show(checks)


def _counts(change: VocabularyChange) -> CheckResult:
    staying = sum(change.is_kept)
    new = len(change.sources) - staying
    detail = f"{change.old.size - staying:,} go, {new:,} come, {staying:,} stay"
    return judged("pieces", True, f"{detail}: {change.old.size:,} before, {staying + new:,} after")


def _measured(
    change: VocabularyChange, samples: Mapping[str, Sequence[str]]
) -> Iterator[CheckResult]:
    for name, lines in samples.items():
        before, after = (bytes_a_piece(pieces, lines) for pieces in (change.old, change.new))
        yield judged(f"bytes a piece, {name}", True, f"{before:.2f} before, {after:.2f} after")
        before, after = (_unknown_share(pieces, lines) for pieces in (change.old, change.new))
        characters = collections.Counter(itertools.chain.from_iterable(lines))
        unknown = [
            c for c, _ in characters.most_common() if change.new.unk_id in change.new.encode(c)
        ]
        named = f": {signs.named(unknown, characters)}" if unknown else ""
        of = f" of {name}" if len(samples) > 1 else ""
        figure = f"{after:.2%}{of}, {before:.2%} before{named}"
        to_set = "raise --size, or make a vocabulary of this text by vocabulary.train"
        is_well = after <= MOST_UNKNOWN
        yield judged("unknown pieces, after", is_well, figure, to_set, otherwise=WARNING)
        yield from joined_words(change.new.normalize, characters)


def _unknown_share(pieces: Pieces, lines: Sequence[str]) -> float:
    counts = collections.Counter(i for line in lines for i in pieces.encode(line))
    return counts[pieces.unk_id] / max(counts.total(), 1)


def bytes_a_piece(pieces: Pieces, lines: Sequence[str]) -> float:
    """Return how many bytes a piece holds on average, in a sample of the lines.

    Bytes of unknown letters do not count, since one unknown piece may stand for a whole word.
    """
    lines = corpus.sample_lines(lines, VERIFIED_LINES)
    letters = collections.Counter(letter for line in lines for letter in line)
    spelled = (letter for letter in letters if pieces.unk_id not in pieces.encode(letter))
    size = sum(len(letter.encode()) * letters[letter] for letter in spelled)
    return size / sum(len(pieces.encode(line)) for line in lines)


def check_same_pieces(change: VocabularyChange, texts: Iterable[str]) -> CheckResult:
    """Check that words of kept pieces, without a new piece, are tokenized as before, each once."""
    name, sources = "kept pieces tokenize words as before", change.sources
    is_kept = change.is_kept
    stable = {ids[0] for ids, same in zip(sources, is_kept, strict=True) if same}
    names_of = lambda ids: [change.old.names[i] for i in ids]
    words = {word for text in texts for word in text.split()}
    same = 0
    for word in sorted(words):
        old_ids, new_ids = change.old.encode(word), change.new.encode(word)
        if not stable.issuperset(old_ids) or not all(is_kept[i] for i in new_ids):
            continue
        ids = [sources[i][0] for i in new_ids]
        if ids != old_ids and not is_tie(old_ids, ids, names_of):
            return judged(name, False, f"{word[:80]!r} was {old_ids} and is {ids}")
        same += 1
    return judged(name, True, f"{same:,} of {len(words):,}; the others use changed pieces")


def _write_vocabulary(change: VocabularyChange, path: str, overwrite: bool = False) -> None:
    rows = {_rows_file(path): json.dumps(change.sources).encode()}
    write_files(change.new.files(path) | rows, overwrite)


def _rows_file(path: str) -> str:
    return path.removesuffix(".model") + ".rows.json"


def write_run(
    checkpoint: str,
    change: VocabularyChange,
    out: Path,
    network: str | None = None,
    dry_run: bool = False,
) -> list[CheckResult]:
    """Write the run, which appears complete and verified or not at all; return its checks.

    Args:
      checkpoint: a run, whose last checkpoint is used, or one checkpoint, local or on gs://.
      change: the old and the new vocabulary.
      out: the folder of the new run.
      network: as `convert --config`, if there is no gin beside the checkpoint.
      dry_run: write nothing.

    Raises:
      UserError: the checkpoint belongs to another network or vocabulary, Hugging Face lacks the new
        network or vocabulary, `out` holds a run, the disk is full, or logits of kept pieces differ.
    """
    old = rewrite.last_checkpoint(checkpoint, network)
    if not 0 <= old.sizes.vocab_size - change.old.size < ROW_MULTIPLE:
        raise UserError(
            old.path,
            why=f"was not trained with this vocabulary, which has {change.old.size:,} ids, and the "
            f"embedding {old.sizes.vocab_size:,} rows",
            to_set="give its own vocabulary, and --extra_ids 100 if seqio adds the sentinels",
        )
    sizes = dataclasses.replace(old.sizes, vocab_size=len(change.rows))
    checks = [_size("network before", old.sizes), _size("network after", sizes)]
    checks.append(_publishable(change, sizes))
    if dry_run:
        return checks
    arrays = {name: _changed(name, array, change) for name, array in old.arrays.items()}
    with staged_folder(out) as temporary:
        checkpoint_path = rewrite.write_run(temporary, old.step, arrays, sizes)
        of_ids = lambda name, value: name.endswith("_id") or isinstance(value, list | dict)
        generation = {k: v for k, v in old.run.generation().items() if not of_ids(k, v)}
        if generation:  # how a T5 generates, without ids of the old vocabulary
            atomic_output.write_json(temporary / model_dir.GENERATION, generation)
        _write_vocabulary(change, str(temporary / change.new.in_run))
        same = same_logits(old.path, old.sizes, checkpoint_path, sizes, change.sources)
        if not passed([same]):
            raise UserError(
                why=f"the check of {same.check!r} fails, so nothing was written: {same.figure}"
            )
    return [*checks, same]


def _publishable(change: VocabularyChange, sizes: Sizes) -> CheckResult:
    """Check that Hugging Face has such a network and vocabulary; raise UserError if not."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / model_dir.GIN_FILES[0]).write_text(rewrite.gin_of(sizes))
        write_files(change.new.files(os.path.join(name, change.new.in_run)))
        described = publishable.describe(model_dir.TrainedRun(name, {}))
        compared = publishable.check_export(model_dir.TrainedRun(name, {}), described, [])
    return judged("publishable", True, str(compared))


def _changed(name: str, array: LazyArray, change: VocabularyChange) -> LazyArray:
    """Return the array for the new ids; arrays without rows of ids stay as they are."""
    owner = next((owner for owner in _AXES if f"/{owner}/" in f"/{name}/"), None)
    ids = range(change.old.size, change.old.size + ROW_MULTIPLE)
    if not owner or not any(length in ids for length in array.shape):
        return array
    axis = _AXES[owner] if len(array.shape) == 2 else 0
    shape = [*array.shape]
    shape[axis] = len(change.rows)
    fetch = lambda index: average_rows(array.read(), change.rows, axis)[index]
    return LazyArray(tuple(shape), array.dtype, fetch)


def average_rows(table: np.ndarray, sources: Sources, axis: int = 0) -> np.ndarray:
    """Return the table for the new ids: each row is the mean of its old rows, in the table's dtype.

    Ids run along `axis`: 0 for `token_embedder/embedding` [V, D], 1 for
    `decoder/logits_dense/kernel` [D, V]. Adafactor's and Adam's moments of these parameters change
    in the same way. A row with a single source is copied bit by bit.
    """
    new = np.take(table, [ids[0] for ids in sources], axis)
    old_rows, new_rows = np.moveaxis(table, axis, 0), np.moveaxis(new, axis, 0)
    for i, ids in enumerate(sources):
        if len(ids) > 1:
            mean = old_rows[list(ids)].astype(np.float32).mean(axis=0)
            new_rows[i] = mean.astype(table.dtype)
    return new


def _size(name: str, sizes: Sizes) -> CheckResult:
    counts = {tensor.sources[0]: math.prod(tensor.shape) for tensor in weight_map.tensors(sizes)}
    total, embeddings = sum(counts.values()), sum(counts.get(name, 0) for name in _AXES)
    detail = (
        f"{sizes.vocab_size:,} rows, {total / 1e6:,.1f} M parameters, "
        f"{embeddings / 1e6:,.1f} M of them embeddings ({embeddings / total:.0%})"
    )
    return judged(name, True, detail)


def same_logits(
    old_path: str, old_sizes: Sizes, new_path: str, new_sizes: Sizes, sources: Sources
) -> CheckResult:
    """Check that both checkpoints give kept pieces the same logits, on a batch of kept pieces."""
    kept_ids = np.array([new for new, old in enumerate(sources) if len(old) == 1 and new > 1])
    old_of = np.array([old[0] for old in sources])
    random_ids = verify.probe_batch(new_sizes)
    batch, old_batch = dict(random_ids), dict(random_ids)
    for key, ids in random_ids.items():
        if key.endswith("_tokens"):
            batch[key] = np.where(ids > 0, kept_ids[ids % len(kept_ids)], 0)
            old_batch[key] = old_of[batch[key]]
    old = verify.trainer_logits([old_path], old_sizes, "float32", old_batch)[..., old_of[kept_ids]]
    new = verify.trainer_logits([new_path], new_sizes, "float32", batch)[..., kept_ids]
    difference, largest = float(np.abs(old - new).max()), float(np.abs(old).max())
    detail = f"{len(kept_ids):,} pieces differ by {difference:.1e} at most, of {largest:.1f}"
    equal = difference <= verify.TOLERANCE * max(1.0, largest)
    return judged("logits of kept pieces equal", equal, detail)
