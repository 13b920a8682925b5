"""Checks of the data: can it be read, how full are its rows, how often is it read, what it takes.

`tasks.look` tells what a sample of the corpus shows, as in a dry run.
"""

import functools
import math
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from common.tables import CheckResult, NotChecked, counted, data_size, fails, ok, warning
from preflight.run_context import RunContext, is_local
from t5x.cli import dry_run
from t5x.input_pipeline import mixed
from t5x.input_pipeline.corpora import Corpora
from t5x.start.vocabulary import check_feature_lengths
from tasks.corpus.listing import too_many_to_ask
from tasks.corpus.source import PARTS, CorpusSource
from tasks.corpus.storage import files
from tasks.look import lines, sampling
from tasks.look.sample import span_tokens
from tasks.look.size import assumed_tokens, published_language
from tasks.objectives import masked_lm, prefix_lm, span_corruption
from tasks.objectives.base import check_targets

_FULL = 0.9
_CACHED_BYTES = 3.0  # most bytes of a token: an id below 2,097,152


def first_records(context: RunContext) -> CheckResult:
    """Check that the first record of every split has the column and a text in it."""
    text, splits = "", list[str]()
    for cfg in context.datasets.values():
        for task in context.tasks(cfg):
            if cfg.split in context.splits(task):
                first = functools.partial(sampling.first_documents, task.source, cfg.split, 1)
                rows = context.read(task.source, first)
                texts = [value for row in rows for value in row.values()]
                text = text or " ".join(" ".join(texts).split())
                splits.append(cfg.split)
    if not splits:
        raise NotChecked("no task has the splits that the run reads")
    return ok(f"the first text of {', '.join(dict.fromkeys(splits))} was read: “{text[:60]}…”")


def sample_line(context: RunContext, name: str) -> CheckResult:
    """Return a line of the look at a sample; only "example" fails if there can be no look."""
    try:
        return context.look[name]
    except ValueError as error:
        if name == "example":
            raise
        raise NotChecked(str(error)) from error


def fill(context: RunContext) -> CheckResult:
    """Check that rows are full of tokens rather than padding, and targets are not cut."""
    check_feature_lengths(context.data)  # raises ValueError for missing lengths
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
    if needed and not isinstance(objective, prefix_lm.PrefixLM | masked_lm.MaskedLM):
        check_targets(lengths, needed, "its objective", context.task.name)
    if isinstance(objective, masked_lm.MaskedLM):
        # A sequence has complete sentences, and its row is not filled up with parts of others.
        return ok(f"rows {int(100 * shares[0])} % full, {how}", numbers={"encoder": shares[0]})
    numbers = {"encoder": shares[0], "decoder": shares[1]}
    figure = f"encoder {int(100 * shares[0])} %, decoder {int(100 * shares[1])} % full, {how}"
    fits = needed is not None and targets == needed.targets  # shorter targets are refused
    if shares[0] >= _FULL and (fits or shares[1] >= _FULL):
        return ok(figure, numbers=numbers)
    if shares[0] >= _FULL:
        enough = needed.targets if needed else math.ceil(shares[1] * targets)
        figure = f"decoder {int(100 * shares[1])} % full: set targets to {enough}"
        to_set = f"set TASK_FEATURE_LENGTHS = {{'inputs': {inputs}, 'targets': {enough}}}"
    elif not context.data.pack:
        to_set = "set train/utils.DatasetConfig.pack = True, or TASK_FEATURE_LENGTHS shorter"
    else:
        to_set = "set TASK_FEATURE_LENGTHS shorter, first the side that is least full"
    return warning(figure, to_set, numbers=numbers)


def measured_fill(context: RunContext) -> tuple[float, float]:
    """Return the shares of encoder and decoder that hold tokens, in rows of the sample.

    A model without a decoder has a share of 0 there.
    """
    share = lambda name: float(np.mean(context.rows[name] > 0))
    if "encoder_loss_weights" in context.rows:
        return share("encoder_segment_ids"), 0.0
    return share("encoder_input_tokens"), share("decoder_target_tokens")


def shards(context: RunContext) -> CheckResult:
    """Check that each host reads separate files, or separate parts of files, with texts in them."""
    listing, source = context.list_files(), context.task.source
    for corpus in context.corpora:
        check = functools.partial(corpus.check_shards, context.data.split, context.shards)
        context.read(corpus, check)
    hosts = counted(context.tpu.hosts, "host")
    figure = f"{counted(len(listing), 'file')} for {context.shards} shards on {hosts}"
    if len(listing) >= context.shards:
        return ok(f"{figure}: each reads separate files")
    if all(source.layout.divisible(file) for file in listing):
        return ok(f"{figure}: each reads separate parts")
    return warning(
        f"{figure}, and they cannot be divided: every shard reads all and keeps its share",
        f"write the corpus as at least {context.shards} files, or uncompressed",
    )


def order(context: RunContext) -> CheckResult:
    """Check that the split trained on has an order that can be saved, and show how far it mixes."""
    context.list_files()  # raises NotChecked where they cannot be listed
    source, split = context.task.source, context.data.split
    if not context.data.shuffle:
        return ok("records are read in the order of the files, as DatasetConfig.shuffle says")
    context.read(source, Corpora(context.data).orders)  # as the run does at its start
    return ok(context.read(source, lambda: source.mixing(split, context.shards)))


def epochs(context: RunContext) -> CheckResult:
    """Check how often the corpus is read to the end of training, if its size is known."""
    numbers = sizes(context)
    if not numbers["row_tokens"]:
        numbers = sample_line(context, "pieces").numbers  # raises why they are unknown
    first, last, mixture = context.start.step, context.run.total_steps, context.data.provider
    if context.start.path is None:
        mixed.check_steps(mixture, last)
    # A run that starts from another's checkpoint begins its mixture there.
    mixture_steps = first if context.start.is_own else 0
    task = context.task.name
    return dry_run.epochs(context.data, task, numbers, first, last, mixture_steps)


def sizes(context: RunContext) -> Mapping[str, Any]:
    """Return the sizes of the corpus and of a row, see `tasks.look.lines.sizes`.

    For a corpus of FineWeb-2 they are roughly known before a record is read. Raise NotChecked if
    they are unknown.
    """
    task = context.task
    try:
        numbers = sample_line(context, "pieces").numbers
    except NotChecked:
        tokens = assumed_tokens(task.source, context.data.split)
        if tokens is None:
            raise
        row_tokens = span_tokens(task, context.data.task_feature_lengths)
        numbers = lines.sizes(tokens, row_tokens or 0.0)
    if not numbers["corpus_tokens"]:
        raise NotChecked("the size of the corpus is unknown")
    return numbers


def file_sizes(context: RunContext) -> list[int]:
    """Return the bytes of the files of the split trained on, or raise NotChecked."""
    listing = context.list_files()
    if too_many_to_ask(listing):
        raise NotChecked(f"the sizes of {len(listing)} remote files would have to be requested")
    sizes = context.read(context.task.source, lambda: [files.size(file) for file in listing])
    if None in sizes:
        raise NotChecked("the server does not report the files' sizes")
    return [size for size in sizes if size is not None]


def copies(context: RunContext) -> CheckResult:
    """Check what a copy, a cache of tokens and this run's temporary files take on a disk."""
    source, split = context.task.source, context.data.split
    if not isinstance(source, CorpusSource):
        raise NotChecked(f"the size of {type(source).__name__} is unknown")
    language = published_language(source, split)
    size = language.parquet_bytes if language else sum(file_sizes(context))
    numbers: dict[str, float] = {"copy": size}
    parts = [f"{'the corpus' if is_local(source) else 'a copy'} takes {data_size(size)}"]
    try:
        numbers["cache"] = _CACHED_BYTES * sizes(context)["corpus_tokens"]
        parts.append(f"a cache of its tokens up to {data_size(numbers['cache'])}")
    except NotChecked as error:
        parts.append(f"a cache of its tokens an unknown size, since {error}")
    temporary = sum(_kept_bytes(context, corpus) for corpus in context.corpora)
    if not temporary:
        return ok(", ".join(parts), numbers=numbers)
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    numbers |= {"kept": temporary, "free": free}
    parts.append(f"each host keeps {data_size(temporary)} in {folder}, {data_size(free)} free here")
    if temporary > free:
        to_set = "set TMPDIR to a larger disk, or tasks.corpus.source.full_shuffle.gigabytes = 0"
        return fails(", ".join(parts), to_set, numbers=numbers)
    return ok(", ".join(parts), numbers=numbers)


def _kept_bytes(context: RunContext, corpus: CorpusSource) -> int:
    """Return the bytes of a corpus that a host keeps to permute them, 0 if they are unknown."""
    split = context.data.split
    try:
        if context.data.shuffle and context.read(corpus, lambda: corpus.order(split)) != PARTS:
            return context.read(corpus, lambda: corpus.text_bytes(split)) or 0
    except NotChecked:
        pass
    return 0
