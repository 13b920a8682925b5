"""One split of a corpus: its files, and the settings that turn their records into documents.

    for screened in corpus_split.screened(corpus_split.files[0]):
        screened.usable          # [(b"un text",), …]

A source makes a `CorpusSplit`, and readers use it. Each batch of records is screened: it gives the
usable documents (a tuple of texts, one for each feature) or the reasons why records are skipped.
"""

import dataclasses
from collections.abc import Callable, Iterator

from common.errors import UserError
from tasks.corpus import held_out
from tasks.corpus.records.documents import Column, Document, Screened, screen
from tasks.corpus.records.formats import PartLayout
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.retry import RetryPolicy, retry

PEEK_BYTES, PEEK_ROWS = 1 << 16, 32
WAITING_S = 10.0  # after which a line says what takes so long


@dataclasses.dataclass(frozen=True)
class CorpusSplit:
    """The files of one split of a corpus, and how they are read.

    A source makes it; it holds data only, so that readers depend on no source.

    `max_chars`: longer documents are skipped. `skips_bad_files`: whether a file that cannot be read
    is skipped. `buckets`: which of the documents are the split's, by their hashes; None is all.
    """

    corpus: str
    name: str
    files: tuple[CorpusFile, ...]
    layout: PartLayout
    column: Column
    max_chars: int
    retry_policy: RetryPolicy
    skips_bad_files: bool = False
    buckets: held_out.Range | None = None

    def batches(self, file: CorpusFile, part: int) -> Iterator[list]:
        """Yield the records of one part of `file` in batches.

        Raises:
          UserError: no record at the beginning of the file has a column of the text, or none at
            the beginning of the first file a column of a filter.
        """
        required = self.column.fields if file == self.files[0] else self.column.text_fields
        return self.layout.batches(file, part, required)

    def screen(self, file: CorpusFile, records: list) -> Screened:
        """Return the documents in some records of `file`, or why they are skipped."""
        return screen(records, self.column.for_file(file.url), self.max_chars)

    def in_small_parts(self) -> "CorpusSplit":
        """Return the split cut into small parts, so that its beginning costs little to read."""
        layout = dataclasses.replace(self.layout, part_bytes=PEEK_BYTES, batch_rows=PEEK_ROWS)
        return dataclasses.replace(self, layout=layout)

    def screened(self, file: CorpusFile) -> Iterator[Screened]:
        """Yield what becomes of the records of `file`, in their order, batch by batch."""
        for part in range(self.layout.count(file)):
            for batch in self.batches(file, part):
                yield self.screen(file, batch)

    def all_screened(self) -> Iterator[Screened]:
        """Yield what becomes of all records in the files, in small parts and of any bucket."""
        split = self.in_small_parts()
        for file in split.files:
            try:
                yield from split.screened(file)
            except UserError:
                if not split.skips_bad_files:
                    raise

    def documents(self) -> Iterator[list[Document]]:
        """Yield the usable documents in the files, also of other `buckets`, batch by batch."""
        return (screened.usable for screened in self.all_screened())

    def retry(self, fn: Callable, file: CorpusFile):
        """Call `fn`, which reads `file`, until it succeeds."""
        return retry(fn, f"reading {file}", self.retry_policy)
