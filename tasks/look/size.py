"""How much text a split has, as far as it can be known without reading it.

    size = text_size(source, "train")
    tokens = size.tokens(bytes_a_token=4.2)
    f"1.2 G tokens are 3 epochs of {tokens.number}{tokens.source}"

The authors of FineWeb-2 publish how many bytes and words it has. The size of other corpora follows
from their files, and for uncompressed lines from the share of text in the first million bytes.
"""

import dataclasses
from typing import NamedTuple

from common.source import Source
from common.tables import data_size
from tasks.corpus.records.documents import screen
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage import files
from tasks.languages import public
from tasks.languages.table import TOKENS_PER_WORD, Language

_SAMPLE_BYTES = 1 << 20


class Tokens(NamedTuple):
    """A number of tokens, and who says so, to end a sentence with."""

    number: float
    source: str


@dataclasses.dataclass(frozen=True)
class TextSize:
    """The bytes of a split's text; `authors` or the `files` may be who says so."""

    text_bytes: float
    authors: str = ""
    files: str = ""

    def tokens(self, bytes_a_token: float) -> Tokens:
        """Return the tokens of the split, for tokens of so many bytes."""
        authors = f" ({self.authors}; {bytes_a_token:.2f} bytes a token)" if self.authors else ""
        return Tokens(self.text_bytes / bytes_a_token, authors or self.files)


def text_size(source: Source, split: str) -> TextSize | None:
    """Return how much text a split has, None if that is unknown."""
    if not isinstance(source, CorpusSource):
        return None
    if language := published_language(source, split):
        return TextSize(language.text_bytes, authors=_authors_size(source, language))
    size = source.text_bytes(split)
    if not size:
        return None
    share = _share_of_text(source, split)
    source_of_size = " (by the files' sizes)" if share is None else ""
    return TextSize(size * (share or 1.0), files=source_of_size)


def published_language(source: Source, split: str) -> Language | None:
    """Return the language of FineWeb-2 whose training split this is, else None."""
    if isinstance(source, CorpusSource) and split == "train":
        return public.fineweb2_language(source)
    return None


def assumed_tokens(source: Source, split: str) -> Tokens | None:
    """Return roughly the tokens of a split of FineWeb-2, before a record of it is read."""
    language = published_language(source, split)
    if language is None:
        return None
    authors = f" ({_authors_size(source, language)}; {TOKENS_PER_WORD} tokens a word assumed)"
    return Tokens(language.words * TOKENS_PER_WORD, authors)


def _authors_size(source: CorpusSource, language: Language) -> str:
    filters = ", without copies and filters" if source.column.copies else ""
    return f"{data_size(language.text_bytes)} of text, by its authors{filters}"


def _share_of_text(source: CorpusSource, split: str) -> float | None:
    """Return the share of text at the beginning of a file of lines, None for other files."""
    file = source.list_files(split)[0]
    if file.kind not in ("jsonl", "text") or file.compression or not source.layout.divisible(file):
        return None
    file = dataclasses.replace(file, length=files.size(file))
    layout = dataclasses.replace(source.layout, part_bytes=_SAMPLE_BYTES)
    size = 0
    for batch in layout.batches(file, 0):
        documents = screen(batch, source.column, source.max_chars).usable
        size += sum(len(text) for document in documents for text in document)
    return size / min(file.length or _SAMPLE_BYTES, _SAMPLE_BYTES)
