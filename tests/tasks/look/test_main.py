"""The command prints a look and writes its page; mistakes are one sentence."""

import re

import pytest

from fakes.corpora import LINES, write
from fakes.refuses import refuses
from tasks.look.__main__ import main


def test_a_look_at_a_task(tmp_path, capsys):
    path = tmp_path / "look.html"
    main(["ro_mini_prefix_lm", "--documents", "30", "--html", str(path)])
    said = capsys.readouterr().out
    assert "30 documents" in said
    assert f"wrote {path}" in said
    assert "inputs 512, targets 512" in said
    assert "ro_mini_prefix_lm, train" in path.read_text()


@pytest.mark.parametrize("corpus", ["{}", "{}/*.jsonl", "{}/a.jsonl"])
def test_a_look_at_a_corpus(tmp_path, corpus, capsys):
    write(tmp_path, "jsonl", LINES[:30], "a")
    main([corpus.format(tmp_path), "--html", str(tmp_path / "look.html")])
    said = capsys.readouterr().out
    assert "30 documents of 30 records read" in said
    assert "1. documentul" in said
    assert "pieces" not in said


def test_inputs_alone_tell_the_targets_to_set(tmp_path, capsys):
    page = str(tmp_path / "a.html")
    flags = ["--lengths", "inputs=1024", "--documents", "20", "--html", page]
    main(["ro_mini_ul2", "--module", "tasks.romanian", *flags])
    assert re.search(r"lengths +inputs 1,024, targets 608\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("argv", "setting", "reason"),
    [
        (["nothing"], "TASK", "no module"),
        (["ro_mini_ul2", "--split", "dev"], None, "'dev'"),
        (["ro_mini_ul2", "--lengths", "inputs"], "--lengths", "inputs=512,targets=114"),
        (["ro_mini_ul2", "--lengths", "targets=512"], "--lengths", "task ro_mini_ul2"),
        (["no/such", "--lengths", "inputs=512"], "--lengths", "no/such"),
        (["./no/such"], "./no/such/*", "./no/such"),
        (["ro_mini_ul2", "--html", "no/such/a.html"], "--html", "no/such"),
    ],
)
def test_mistakes_are_one_sentence(argv, setting, reason):
    with refuses(setting) as refusal:
        main(argv)
    assert reason in refusal.value.why
