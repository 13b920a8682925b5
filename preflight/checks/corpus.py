"""Checks of the corpus: whether it can be read, how it is divided, how full its rows are."""

import functools
import itertools
import math

import numpy as np
import seqio

from command_line.results import CheckResult, NotChecked, counted, ok, warning
from preflight.checks.vocabulary import normalized
from preflight.run_context import RunContext
from t5x.input_pipeline.checks import feature_shapes
from t5x.input_pipeline.config import DatasetConfig
from tasks.documents import screen
from tasks.io import files, formats
from tasks.io.retry import RetryPolicy
from tasks.objectives import prefix_lm, span_corruption
from tasks.objectives.base import check_targets
from tasks.sources import CorpusSource
from tasks.vocabularies import sentinels_if_any

_RETRY_POLICY = RetryPolicy(limit_s=30.0)
_SAMPLE_BYTES = 1 << 20
_FULL = 0.9
# Beyond four epochs a token teaches less and less (Muennighoff et al. 2023, arXiv:2305.16264).
_MOST_EPOCHS = 4.0
_SIDES = {"encoder": "encoder_input_tokens", "decoder": "decoder_target_tokens"}


def first_records(context: RunContext) -> CheckResult:
    """Check that the first record of every split has the column and a text in it."""
    shown = ""
    for cfg in context.datasets.values():
        for task in context.tasks(cfg):
            if cfg.split in (task.splits or ()):
                text = context.read(task.source, functools.partial(_first, task, cfg))
                shown = shown or " ".join(text.split())
    return ok(f"the first text of every split was read: “{shown[:60]}…”")


def _first(task: seqio.Task, cfg: DatasetConfig) -> str:
    if not hasattr(task.source, "peek"):
        dataset = task.source.get_dataset(split=cfg.split, shuffle=False)
        return str(next(iter(dataset.as_numpy_iterator())))
    return task.source.peek(cfg.split, 1)[0]


def _files(context: RunContext) -> list[files.CorpusFile]:
    """Return the files of the split trained on."""
    source = context.task.source
    context.require_corpus(source)
    if not isinstance(source, CorpusSource):
        raise NotChecked(f"{type(source).__name__} does not list its files")
    return context.read(source, lambda: source.list_files(context.data.split, _RETRY_POLICY))


def shards(context: RunContext) -> CheckResult:
    """Check that each host reads separate files, or separate parts of files."""
    found, source = _files(context), context.task.source
    hosts = counted(context.tpu.hosts, "host")
    figure = f"{counted(len(found), 'file')} for {context.shards} shards on {hosts}"
    if len(found) >= context.shards:
        return ok(f"{figure}: each reads separate files")
    if all(source.layout.divisible(file) for file in found):
        return ok(f"{figure}: each reads separate parts")
    return warning(
        f"{figure}, and they cannot be divided: every shard reads all and keeps its share",
        f"the corpus as at least {context.shards} files, or uncompressed",
    )


def order(context: RunContext) -> CheckResult:
    """Show how far the records of the split trained on are mixed."""
    _files(context)  # raises NotChecked where they cannot be listed
    source, split = context.task.source, context.data.split
    if not context.data.shuffle:
        return ok("records are read in the order of the files, as DatasetConfig.shuffle says")
    return ok(context.read(source, lambda: source.mixing(split, context.shards)))


def fill(context: RunContext) -> CheckResult:
    """Check that rows are full of tokens rather than padding, and targets are not cut."""
    feature_shapes(context.data)  # raises ValueError for missing lengths
    lengths, objective = context.data.task_feature_lengths or {}, context.objective
    inputs, targets = lengths["inputs"], lengths["targets"]
    needed = None
    if isinstance(objective, span_corruption.SpanNoise):
        needed = objective.lengths(inputs)
        shares = (objective.corrupted(needed.tokens)[0] / inputs, needed.targets / targets)
        how = "by the objective"
    else:
        shares, how = measured_fill(context), "measured on a sample"
        if objective:
            needed = objective.lengths(inputs, context.require_vocabulary())
    if needed and not isinstance(objective, prefix_lm.PrefixLM):
        check_targets(lengths, needed, "its objective", context.task.name)
    numbers = {"encoder": shares[0], "decoder": shares[1]}
    figure = f"encoder {int(100 * shares[0])} %, decoder {int(100 * shares[1])} % full, {how}"
    if min(shares) >= _FULL:
        return ok(figure, numbers=numbers)
    if shares[0] >= _FULL:
        enough = needed.targets if needed else math.ceil(shares[1] * targets)
        figure = f"decoder {int(100 * shares[1])} % full: set targets to {enough}"
        to_set = f"TASK_FEATURE_LENGTHS = {{'inputs': {inputs}, 'targets': {enough}}}"
    elif not context.data.pack:
        to_set = "train/utils.DatasetConfig.pack = True, or shorter TASK_FEATURE_LENGTHS"
    else:
        to_set = "TASK_FEATURE_LENGTHS shorter, first the side that is least full"
    return warning(figure, to_set, numbers=numbers)


def measured_fill(context: RunContext) -> tuple[float, float]:
    """Return the shares of encoder and decoder that hold tokens, in rows of the sample."""
    encoder, decoder = (
        float(np.mean([np.mean(row[name] != 0) for row in context.sample_rows]))
        for name in _SIDES.values()
    )
    return encoder, decoder


def example(context: RunContext) -> CheckResult:
    """Show one example as text, as the model gets it."""
    row, vocabulary = context.sample_rows[0], context.require_vocabulary()
    shown = []
    for title, (side, name) in zip(("inputs ", "targets"), _SIDES.items(), strict=True):
        ids = row[name][row.get(f"{side}_segment_ids", np.sign(row[name])) == 1]
        text = as_text(vocabulary, ids.tolist())
        shown.append(f"{title}  {text if len(text) <= 600 else f'{text[:600]} …'}")
    return ok(f"one of {len(context.sample_rows)} rows is shown below", text="\n".join(shown))


def as_text(vocabulary: seqio.Vocabulary, ids: list[int]) -> str:
    """Return the text of ids, with sentinels as <0>, <1>, … in their order."""
    marks = {token: f" <{n}> " for n, token in enumerate(sentinels_if_any(vocabulary))}
    pieces: list[str] = []
    for is_mark, group in itertools.groupby(ids, marks.__contains__):
        tokens = list(group)
        pieces += map(marks.__getitem__, tokens) if is_mark else [vocabulary.decode(tokens)]
    return " ".join("".join(pieces).split())


def epochs(context: RunContext) -> CheckResult:
    """Check how often the corpus is read to the end of training, if its size is known."""
    size = corpus_tokens(context)
    lengths = context.data.task_feature_lengths or {}
    if isinstance(context.objective, span_corruption.SpanNoise):
        per_row = float(context.objective.lengths(lengths["inputs"]).tokens)
    else:
        encoder, decoder = measured_fill(context)
        per_row = encoder * lengths["inputs"] + decoder * lengths["targets"]
    read = context.steps_left * context.data.batch_size * per_row
    count = read / size
    figure = f"{amount(read)} tokens are {count:.2g} epochs of {amount(size)}"
    numbers = {"tokens": size, "read": read, "epochs": count}
    if count > _MOST_EPOCHS:
        enough = context.first_step + int(context.steps_left * _MOST_EPOCHS / count)
        return warning(
            f"{figure}: beyond {_MOST_EPOCHS:.0f} a text teaches less and less",
            f"TRAIN_STEPS to about {enough:,}, or a larger corpus",
            numbers=numbers,
        )
    return ok(figure, numbers=numbers)


def amount(number: float) -> str:
    """Return a large number in three digits."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def corpus_tokens(context: RunContext) -> float:
    """Return the tokens of the split trained on, from file sizes and its first million bytes."""
    vocabulary, found = context.require_vocabulary(), _files(context)
    source = context.task.source
    if not all(file.kind in ("jsonl", "text") and not file.compression for file in found):
        raise NotChecked("the number of tokens in compressed and binary files is unknown")
    if any(file.remote for file in found) and len(found) > 100:
        raise NotChecked(f"the sizes of {len(found)} remote files would have to be requested")
    sizes = [size for file in found if (size := files.size(file)) is not None]
    if len(sizes) < len(found):
        raise NotChecked("the server does not report the files' sizes")
    layout = formats.PartLayout(source.column.fields, source.documents, _SAMPLE_BYTES)
    tokens = 0
    for batch in layout.batches(found[0], 0):
        for text in screen(batch, source.column, source.max_chars, None):
            tokens += len(vocabulary.encode(normalized(context.task, text.decode())))
    if not tokens:
        raise NotChecked(f"{found[0].url} has no usable text at its beginning")
    return tokens * sum(sizes) / min(sizes[0], _SAMPLE_BYTES)
