"""What the vocabulary commands share: the corpus, results as a table, errors as one sentence."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator

from common import arguments
from common.errors import guarded
from vocabulary import corpus
from vocabulary.check_results import VocabularyCheck, passed, table

MODEL_HELP = "SentencePiece file, run or converted folder, or Hugging Face hub name"
_CORPUS_FLAGS = ("corpus", "column", "config", "split", "max_documents")
_SECONDS = 10  # between reports


def add_corpus_arguments(
    parser: argparse.ArgumentParser, required: bool, max_documents: int | None = None
) -> None:
    """Add --corpus, and the flags that say what is read from it."""
    add, number = parser.add_argument, arguments.integer(1)
    about = (
        "folder or bucket of files named <split>*, pattern of files, http(s) file, @ and the "
        "address of a list of files, or Hugging Face hub name"
    )
    add("--corpus", type=arguments.text, required=required, help=about)
    about = "column of the text, or a template of several, {title}\\n{body}"
    add("--column", type=arguments.text, default="text", help=about)
    add("--config", help="configuration of a hub corpus")
    add("--split", type=arguments.text, default="train", help="the split to read")
    about = "read at most this many documents, drawn from all of it"
    add("--max_documents", type=number, default=max_documents, help=about)
    about = "write Romanian ş ţ as ș ț, as tasks with cedilla=True do"
    add("--cedilla", action="store_true", help=about)


def read_documents(args: argparse.Namespace) -> Iterator[str]:
    """Stream the documents that the corpus flags name; see `corpus.read_documents`."""
    return corpus.read_documents(**{name: getattr(args, name) for name in _CORPUS_FLAGS})


def read_lines(args: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of what the corpus flags name, and report on stderr what has been read."""
    counts = corpus.TextCounts()
    start = reported = time.monotonic()
    for line in corpus.read_lines(read_documents(args), counts, cedilla=args.cedilla):
        yield line
        if (now := time.monotonic()) - reported >= _SECONDS:
            reported = now
            print(f"{counts} in {now - start:.0f} s", file=sys.stderr, flush=True)
    print(f"{counts} in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def command(
    name: str,
    description: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], list[VocabularyCheck]],
) -> Callable[..., None]:
    """Return a main function, which prints the checks and exits with 1 if one fails."""

    @guarded
    def main(argv: list[str] | None = None) -> None:
        parser = arguments.parser(f"python -m vocabulary.{name}", description)
        add_arguments(parser)
        args = parser.parse_args(argv)
        checks = run(args)
        print(table(checks))
        if not passed(checks):
            sys.exit(1)

    return main
