"""Checks of the corpus: can it be read, by whom, how full are its rows, how long does it last."""

import math

import numpy as np
import seqio

from preflight.checks.vocabulary import normalized
from preflight.results import NotChecked, Row, many, ok, warning
from preflight.run_context import Subject
from t5x.input_pipeline.checks import feature_shapes
from t5x.input_pipeline.config import DatasetConfig
from tasks.documents import screen
from tasks.io import files, formats
from tasks.io.retry import Patience
from tasks.objectives import prefix_lm, span_corruption
from tasks.sources import CorpusSource
from tasks.vocabularies import sentinels_if_any

_PATIENCE = Patience(limit_s=30.0)
_SAMPLE_BYTES = 1 << 20
_FULL = 0.9
# Beyond four readings a token teaches less and less (Muennighoff et al. 2023, arXiv:2305.16264).
_MOST_EPOCHS = 4.0


def records_read(s: Subject) -> Row:
    """The first records of every split have the column and a text in it."""
    shown = ""
    for cfg in s.datasets.values():
        for task in s.tasks(cfg):
            if cfg.split not in (task.splits or ()):
                continue
            first = s.ask(task.source, lambda task=task, cfg=cfg: _first(task, cfg))
            shown = shown or " ".join(first.split())
    return ok(f"the first text of every split was read: “{shown[:60]}…”")


def _first(task: seqio.Task, cfg: DatasetConfig) -> str:
    if not hasattr(task.source, "peek"):
        dataset = task.source.get_dataset(split=cfg.split, shuffle=False)
        return str(next(iter(dataset.as_numpy_iterator())))
    return task.source.peek(cfg.split, 1)[0]


def shards(s: Subject) -> Row:
    """Each host gets files of its own, or parts of files."""
    source = s.task.source
    s.require_corpus(source)
    if not isinstance(source, CorpusSource):
        raise NotChecked(f"{type(source).__name__} does not tell its files")
    found = s.ask(source, lambda: source.list_files(s.data.split, _PATIENCE))
    hosts = many(s.tpu.hosts, "host")
    figure = f"{many(len(found), 'file')} for {s.shards} shards on {hosts}"
    if len(found) >= s.shards:
        return ok(f"{figure}: each reads files of its own")
    if all(source.layout(file).divisible(file) for file in found):
        return ok(f"{figure}: each reads parts of its own")
    return warning(
        f"{figure}, and they cannot be cut: every shard reads all and keeps its share",
        f"the corpus as at least {s.shards} files, or uncompressed",
    )


def fill(s: Subject) -> Row:
    """Rows are full of tokens, not of padding; a row's targets have room."""
    lengths = s.data.task_feature_lengths
    feature_shapes(s.data)
    inputs, targets = lengths["inputs"], lengths["targets"]
    needed = None
    if isinstance(s.objective, span_corruption.SpanNoise):
        needed = s.objective.lengths(inputs)
        shares = (s.objective.corrupted(needed.tokens)[0] / inputs, needed.targets / targets)
        how = "by the objective"
    else:
        shares, how = measured(s), "measured on a sample"
        if s.objective:
            needed = s.objective.lengths(inputs, s.require_vocabulary())
    if needed and not isinstance(s.objective, prefix_lm.PrefixLM):
        span_corruption.check_targets(lengths, needed, "its objective", s.task.name)
    numbers = {"encoder": shares[0], "decoder": shares[1]}
    figure = f"encoder {int(100 * shares[0])} %, decoder {int(100 * shares[1])} % full, {how}"
    if min(shares) >= _FULL:
        return ok(figure, numbers=numbers)
    if shares[0] >= _FULL:
        room = needed.targets if needed else math.ceil(shares[1] * targets)
        figure = f"decoder {int(100 * shares[1])} % full: set targets to {room}"
        to_set = f"TASK_FEATURE_LENGTHS = {{'inputs': {inputs}, 'targets': {room}}}"
    elif not s.data.pack:
        to_set = "train/utils.DatasetConfig.pack = True, or shorter TASK_FEATURE_LENGTHS"
    else:
        to_set = "TASK_FEATURE_LENGTHS shorter, the side first that is least full"
    return warning(figure, to_set, numbers=numbers)


def measured(s: Subject) -> tuple[float, float]:
    """Shares of encoder and decoder that hold tokens, in rows of the sample."""
    names = ("encoder_input_tokens", "decoder_target_tokens")
    return tuple(float(np.mean([np.mean(row[n] != 0) for row in s.rows()])) for n in names)


def example(s: Subject) -> Row:
    """One example as the model gets it, as text."""
    rows = s.rows()
    vocabulary = s.require_vocabulary()
    shown = []
    for title, side, name in (
        ("inputs ", "encoder", "encoder_input_tokens"),
        ("targets", "decoder", "decoder_target_tokens"),
    ):
        row = rows[0]
        ids = row[name][row.get(f"{side}_segment_ids", np.sign(row[name])) == 1]
        shown.append(f"{title}  {_cut(as_text(vocabulary, ids.tolist()))}")
    return ok(f"one of {len(rows)} rows stands below", text="\n".join(shown))


def as_text(vocabulary: seqio.Vocabulary, ids: list[int]) -> str:
    """Text of ids, sentinels as <0>, <1>, … in their order."""
    marks = {token: f" <{n}> " for n, token in enumerate(sentinels_if_any(vocabulary))}
    pieces, run = [], []
    for token in [*ids, None]:
        if token is not None and token not in marks:
            run.append(token)
            continue
        pieces.append(vocabulary.decode(run) if run else "")
        pieces.append(marks.get(token, ""))
        run = []
    return " ".join("".join(pieces).split())


def _cut(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else f"{text[:limit]} …"


def epochs(s: Subject) -> Row:
    """How often the corpus is read to the end of training, if its size is known."""
    size = corpus_tokens(s)
    lengths = s.data.task_feature_lengths
    if isinstance(s.objective, span_corruption.SpanNoise):
        per_row = s.objective.lengths(lengths["inputs"]).tokens
    else:
        encoder, decoder = measured(s)
        per_row = encoder * lengths["inputs"] + decoder * lengths["targets"]
    read = s.steps_left * s.data.batch_size * per_row
    count = read / size
    figure = f"{amount(read)} tokens are {count:.2g} readings of {amount(size)}"
    numbers = {"tokens": size, "read": read, "epochs": count}
    if count > _MOST_EPOCHS:
        enough = s.first_step + int(s.steps_left * _MOST_EPOCHS / count)
        return warning(
            f"{figure}: beyond {_MOST_EPOCHS:.0f} a text teaches less and less",
            f"TRAIN_STEPS to about {enough:,}, or a larger corpus",
            numbers=numbers,
        )
    return ok(figure, numbers=numbers)


def amount(number: float) -> str:
    """A large number in three digits."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def corpus_tokens(s: Subject) -> float:
    """Tokens of the split trained on, from its files' sizes and the first million bytes of it."""
    source, vocabulary = s.task.source, s.require_vocabulary()
    s.require_corpus(source)
    if not isinstance(source, CorpusSource):
        raise NotChecked(f"{type(source).__name__} does not tell the corpus's size")
    found = s.ask(source, lambda: source.list_files(s.data.split, _PATIENCE))
    if not all(file.kind in ("jsonl", "text") and not file.packing for file in found):
        raise NotChecked("of compressed and binary files the number of tokens is not known")
    if any(file.remote for file in found) and len(found) > 100:
        raise NotChecked(f"{len(found)} remote files would have to be asked for their sizes")
    sizes = [files.size(file) for file in found]
    if None in sizes:
        raise NotChecked("the server does not tell the files' sizes")
    layout = formats.Layout(source.column.fields, source.documents, _SAMPLE_BYTES)
    tokens = 0
    for batch in source.batches(found[0], 0, layout):
        for text in screen(batch, source.column, source.max_chars, None):
            tokens += len(vocabulary.encode(normalized(s.task, text.decode())))
    if not tokens:
        raise NotChecked(f"{found[0].url} has no usable text at its beginning")
    return tokens * sum(sizes) / min(sizes[0], _SAMPLE_BYTES)
