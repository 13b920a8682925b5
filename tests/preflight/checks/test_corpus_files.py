"""The files that a run trains on are listed, or it is said why not."""

import pytest

from command_line.results import NotChecked
from fakes import valid_run
from preflight.checks.corpus_files import list_files
from tasks.sources import CorpusSource


def test_the_files_of_the_split_trained_on(write_corpus, task):
    source = CorpusSource(write_corpus(["Ana are mere."], files=3))
    found = list_files(valid_run.context(**task(source)))
    assert [file.url.rpartition("/")[2] for file in found] == [f"train-{i}.jsonl" for i in range(3)]


def test_a_remote_corpus_is_not_listed_offline(task):
    with pytest.raises(NotChecked, match="--offline is set"):
        list_files(valid_run.context(offline=True, **task(CorpusSource("user/name"))))
