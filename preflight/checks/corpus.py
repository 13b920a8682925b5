"""Checks of the corpus: whether it can be read, how it is divided, how full its rows are."""

import functools
import math

import numpy as np
import seqio

from common.tables import CheckResult, counted, ok, warning
from preflight.run_context import RunContext
from t5x.input_pipeline.checks import check_feature_lengths
from t5x.input_pipeline.config import DatasetConfig
from tasks.look.sampling import as_text
from tasks.objectives import masked_lm, prefix_lm, span_corruption
from tasks.objectives.base import check_targets

_FULL = 0.9
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


def shards(context: RunContext) -> CheckResult:
    """Check that each host reads separate files, or separate parts of files, with texts in them."""
    found, source = context.list_files(), context.task.source
    context.read(source, lambda: source.check_shards(context.data.split, context.shards))
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
    context.list_files()  # raises NotChecked where they cannot be listed
    source, split = context.task.source, context.data.split
    if not context.data.shuffle:
        return ok("records are read in the order of the files, as DatasetConfig.shuffle says")
    return ok(context.read(source, lambda: source.mixing(split, context.shards)))


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
    """Return the shares of encoder and decoder that hold tokens, in rows of the sample.

    A model without a decoder has a share of 0 there.
    """
    if "encoder_loss_weights" in context.sample_rows[0]:
        filled = [np.mean(row["encoder_segment_ids"] > 0) for row in context.sample_rows]
        return float(np.mean(filled)), 0.0
    encoder, decoder = (
        float(np.mean([np.mean(row[name] != 0) for row in context.sample_rows]))
        for name in _SIDES.values()
    )
    return encoder, decoder


def example(context: RunContext) -> CheckResult:
    """Show one example as text, as the model gets it."""
    row, _ = context.sample_rows[0], context.require_vocabulary()
    shown, sides = [], list(_SIDES.items())
    if "encoder_target_tokens" in row:
        sides[1] = ("encoder", "encoder_target_tokens")
    for title, (side, name) in zip(("inputs ", "targets"), sides, strict=True):
        ids = row[name][row.get(f"{side}_segment_ids", np.sign(row[name])) == 1]
        vocabulary = context.task.output_features[title.strip()].vocabulary
        text = as_text(vocabulary, ids.tolist())
        shown.append(f"{title}  {text if len(text) <= 600 else f'{text[:600]} …'}")
    return ok(f"one of {len(context.sample_rows)} rows is shown below", text="\n".join(shown))
