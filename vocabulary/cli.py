"""What the vocabulary commands share: corpus flags, results as a table, errors as one sentence.

def main(argv=None):
    run_command("train", __doc__, _add_arguments, run, argv)
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

from vocabulary import corpus
from vocabulary.check_results import VocabularyCheck, passed, table

MODEL_HELP = "SentencePiece file, run or converted folder, or Hugging Face hub name"
CORPUS_HELP = "glob of files, http(s) file, or Hugging Face hub name"


def add_corpus_arguments(parser: argparse.ArgumentParser, max_documents: int | None = None) -> None:
    """Add the flags that say what is read from --corpus."""
    add = parser.add_argument
    add("--column", default="text", help="the column that holds the text")
    add("--config", help="configuration of a hub corpus")
    add("--split", default="train", help="split of a hub corpus")
    add("--max_documents", type=int, default=max_documents, help="read at most this many documents")


def read_documents(args: argparse.Namespace) -> Iterator[Any]:
    """Stream the documents that the corpus flags name."""
    return corpus.read_documents(
        args.corpus,
        column=args.column,
        config=args.config,
        split=args.split,
        max_documents=args.max_documents,
    )


def run_command(
    name: str,
    description: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], list[VocabularyCheck]],
    argv: list[str] | None,
) -> None:
    """Run one command and print its checks; exit with code 1 if one fails or an error is raised."""
    parser = argparse.ArgumentParser(
        prog=f"python -m vocabulary.{name}", description=description.splitlines()[0]
    )
    add_arguments(parser)
    try:
        checks = run(parser.parse_args(argv))
    except (ValueError, OSError) as error:
        sys.exit(f"vocabulary.{name}: {error}")
    print(table(checks))
    if not passed(checks):
        sys.exit(1)
