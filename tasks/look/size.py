"""How many tokens a split has, as far as it can be known without reading it."""

import dataclasses

import seqio

from common.tables import data_size
from tasks.corpus.records.documents import screen
from tasks.corpus.source import CorpusSource
from tasks.languages import public

_SAMPLE_BYTES = 1 << 20


def tokens(task: seqio.Task, split: str, bytes_a_token: float) -> tuple[float, str] | None:
    """Return the tokens of a split, and how they are known, to end a sentence; None if unknown.

    FineWeb-2's authors publish its bytes; others follow from the files' sizes, and of uncompressed
    lines from the share of text in the first million bytes.
    """
    source = task.source
    if not isinstance(source, CorpusSource):
        return None
    language = public.fineweb2_language(source) if split == "train" else None
    if language is not None:
        about = f" ({data_size(language.text_bytes)} of text, by its authors"
        about += ", without copies and filters" if source.column.copies else ""
        return language.text_bytes / bytes_a_token, f"{about}; {bytes_a_token:.2f} bytes a token)"
    size = source.text_bytes(split)
    if not size:
        return None
    share = _share_of_text(source, split)
    how = " (by the files' sizes)" if share is None else ""
    return size * (share or 1.0) / bytes_a_token, how


def _share_of_text(source: CorpusSource, split: str) -> float | None:
    """Return the share of text at the beginning of a file of lines, None of other files."""
    file = source.list_files(split)[0]
    if file.kind not in ("jsonl", "text") or file.compression or not source.layout.divisible(file):
        return None
    layout = dataclasses.replace(source.layout, part_bytes=_SAMPLE_BYTES)
    found = 0
    for batch in layout.batches(file, 0):
        found += sum(map(len, screen(batch, source.column, source.max_chars).usable))
    return found / min(file.length or _SAMPLE_BYTES, _SAMPLE_BYTES)
