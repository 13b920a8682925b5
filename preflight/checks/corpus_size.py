"""Checks of the corpus's size: how often it is read, and what copies of it take on a disk."""

import shutil
import tempfile

from common.tables import CheckResult, NotChecked, counted, data_size, fails, ok, warning
from preflight.checks.corpus import measured_fill
from preflight.run_context import RunContext, is_local
from tasks.corpus import formats
from tasks.corpus.documents import screen
from tasks.corpus.source import RECORDS, CorpusSource
from tasks.languages import public
from tasks.languages.table import TOKENS_PER_WORD, Language
from tasks.look.sampling import normalized
from tasks.objectives import span_corruption

_SAMPLE_BYTES = 1 << 20
# Beyond four epochs a token teaches less and less (Muennighoff et al. 2023, arXiv:2305.16264).
_MOST_EPOCHS = 4.0
_CACHED_BYTES = 3.0  # of a token, at most: of an id below 2,097,152


def epochs(context: RunContext) -> CheckResult:
    """Check how often the corpus is read to the end of training, if its size is known."""
    size, how = corpus_tokens(context)
    lengths = context.data.task_feature_lengths or {}
    if isinstance(context.objective, span_corruption.SpanNoise):
        per_row = float(context.objective.lengths(lengths["inputs"]).tokens)
    else:
        encoder, decoder = measured_fill(context)
        per_row = encoder * lengths["inputs"] + decoder * lengths["targets"]
    read = context.steps_left * context.data.batch_size * per_row
    count = read / size
    times = counted(count, "epoch", ".2g")
    figure = f"{amount(read)} tokens are {times} of {amount(size)}{how}"
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


def corpus_tokens(context: RunContext) -> tuple[float, str]:
    """Return the tokens of the split trained on, and how they are known, as the end of a sentence.

    Of FineWeb-2 its authors publish the bytes; else it is file sizes and the first million bytes.
    """
    source = context.task.source
    if (language := language_of(context)) is not None:
        about = f" ({data_size(language.text_bytes)} of text, by its authors"
        if source.column.copies:
            about += ", without copies and filters"
        try:
            texts, ids = context.sample_tokens
        except NotChecked:
            assumed = f"; {TOKENS_PER_WORD} tokens a word assumed)"
            return language.words * TOKENS_PER_WORD, about + assumed
        each = sum(len(text.encode()) for text in texts) / sum(map(len, ids))
        return language.text_bytes / each, f"{about}; {each:.2f} bytes a token)"
    vocabulary, found = context.require_vocabulary(), context.list_files()
    if not all(file.kind in ("jsonl", "text") and not file.compression for file in found):
        raise NotChecked("the number of tokens in compressed and binary files is unknown")
    sizes = context.file_sizes
    layout = formats.PartLayout(source.column.fields, source.documents, _SAMPLE_BYTES)
    n_tokens = 0
    for batch in layout.batches(found[0], 0):
        for text in screen(batch, source.column, source.max_chars, None):
            n_tokens += len(vocabulary.encode(normalized(context.task, text.decode())))
    if not n_tokens:
        raise NotChecked(f"{found[0].url} has no usable text at its beginning")
    return n_tokens * sum(sizes) / min(sizes[0], _SAMPLE_BYTES), ""


def language_of(context: RunContext) -> Language | None:
    """Return the language whose training split of FineWeb-2 is trained on, else None."""
    source = context.task.source
    if isinstance(source, CorpusSource) and context.data.split == "train":
        return public.fineweb2_language(source)
    return None


def copies(context: RunContext) -> CheckResult:
    """Check what a copy, a cache of tokens and this run's temporary files take on a disk."""
    source = context.task.source
    if not isinstance(source, CorpusSource):
        raise NotChecked(f"the size of {type(source).__name__} is unknown")
    language = language_of(context)
    size = language.parquet_bytes if language else sum(context.file_sizes)
    numbers: dict[str, float] = {"copy": size}
    shown = [f"{'the corpus' if is_local(source) else 'a copy'} takes {data_size(size)}"]
    try:
        numbers["cache"] = _CACHED_BYTES * corpus_tokens(context)[0]
        shown.append(f"a cache of its tokens up to {data_size(numbers['cache'])}")
    except NotChecked as error:
        shown.append(f"a cache of its tokens an unknown size, since {error}")
    kept = kept_text(context)
    if not kept:
        return ok(", ".join(shown), numbers=numbers)
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    numbers |= {"kept": kept, "free": free}
    shown.append(f"each host keeps {data_size(kept)} in {folder}, {data_size(free)} free here")
    if kept > free:
        to_set = "TMPDIR to a larger disk, or tasks.corpus.source.full_shuffle.gigabytes = 0"
        return fails(", ".join(shown), to_set, numbers=numbers)
    return ok(", ".join(shown), numbers=numbers)


def kept_text(context: RunContext) -> float:
    """Return how many bytes of text each host keeps in the folder for temporary files."""
    source, split = context.task.source, context.data.split
    try:
        if not context.data.shuffle or context.read(source, lambda: source.order(split)) != RECORDS:
            return 0.0
        return context.read(source, lambda: source.text_bytes(split)) or 0.0
    except NotChecked:
        return 0.0
