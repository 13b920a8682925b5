"""The four commands read a corpus and end in one way."""

import argparse

import pytest

from fakes.paths import ROOT
from vocabulary import cli
from vocabulary.check_results import VocabularyCheck

MINI = str(ROOT / "data" / "ro_mini" / "validation.jsonl")


def main(run):
    def add_arguments(parser):
        cli.add_corpus_arguments(parser, required=False, max_documents=2)

    return cli.command("try", "Try it.", add_arguments, run)


def test_checks_are_printed_and_a_failed_one_ends_with_code_1(capsys):
    main(lambda args: [VocabularyCheck("size", "warn", "3")])([])
    assert capsys.readouterr().out == "size  warn  3\n"
    with pytest.raises(SystemExit) as end:
        main(lambda args: [VocabularyCheck("size", "fail", "3")])([])
    assert end.value.code == 1
    assert capsys.readouterr().out == "size  fail  3\n"


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("too small"), "2"), (OSError(28, "too small"), "1")]
)
def test_an_error_is_one_sentence(error, status, capsys):
    def fail(args: argparse.Namespace):
        raise error

    with pytest.raises(SystemExit, match=status):
        main(fail)([])
    assert capsys.readouterr().err.rstrip(".\n") == "Error: too small"


def test_the_corpus_flags_say_what_is_read_and_progress_is_shown(capsys):
    found = []

    def run(args):
        found.append(list(cli.read_lines(args)))
        return [VocabularyCheck("read", "ok", "")]

    main(run)(["--corpus", MINI])
    main(run)(["--corpus", MINI, "--column", "id", "--max_documents", "3"])
    assert len(found[1]) == 3
    assert found[0] != found[1][:2]
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in said] == ["read 2 documents", "read 3 documents"]
