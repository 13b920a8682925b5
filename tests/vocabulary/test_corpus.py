"""Text of every kind of file arrives as short normalized lines."""

import argparse
import collections
import json
import re

import pytest

from fakes.paths import ROOT
from fakes.refuses import refuses
from tasks import new_job, new_language
from tasks.look import __main__ as look
from vocabulary import check, corpus, extend, train, trim

MINI = str(ROOT / "data" / "ro_mini" / "train-*.jsonl")


def test_long_lines_are_cut_at_spaces():
    text = "cuvânt " * 2000
    parts = list(corpus.split_line(text))
    assert all(len(part.encode()) <= corpus.MAX_LINE_BYTES for part in parts)
    assert " ".join(parts).split() == text.split()
    assert list(corpus.split_line("a" * 5000 + " b")) == ["b"]
    assert list(corpus.split_line("  ")) == []


def test_text_without_spaces_is_cut_between_characters():
    text = "人人生而自由在尊严和权利上一律平等" * 200
    parts = list(corpus.split_line(text))
    assert "".join(parts) == text
    assert len(parts) == 3
    assert all(len(part.encode()) <= corpus.MAX_LINE_BYTES for part in parts)
    assert list(corpus.split_line("aă" * 4, limit=5)) == ["aăa", "ăa", "ăa", "ă"]


COMMANDS = (check, extend, look, new_job, new_language, train, trim)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_template_that_help_shows_has_no_escape(command, capsys):
    """A shell leaves \\n as it is, and each text would have a backslash and an n."""
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    templates = re.findall(r"\{\w+\}[^{}]*\{\w+\}", capsys.readouterr().out)
    assert templates
    assert not [template for template in templates if "\\" in template]


def test_cedillas_become_commas_where_it_is_asked_for():
    assert list(corpus.lines_of("Ştiinţă\n\nşi ţară", cedilla=True)) == ["Știință", "și țară"]
    assert list(corpus.lines_of("Ştiinţă\n \nşi ţară")) == ["Ştiinţă", "şi ţară"]


def test_a_table_is_refused_until_a_flag_says_what_is_text(tmp_path):
    texts = [f"Rândul {i} spune ceva." for i in range(20)]
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{i}\t{text}\n" for i, text in enumerate(texts)))
    with refuses(path) as refusal:
        corpus.read_documents(str(path))
    assert "--column=2" in refusal.value.to_set
    assert list(corpus.read_documents(str(path), column="2")) == texts
    assert len(list(corpus.read_documents(str(path), documents="lines"))) == 20


def test_the_flags_say_what_is_read_and_progress_is_shown(capsys):
    def read(number, *flags):
        parser = argparse.ArgumentParser()
        corpus.add_arguments(parser, required=True, max_documents=2)
        lines = list(corpus.read_lines(parser.parse_args(["--corpus", MINI, *flags])))
        first, *_, last = capsys.readouterr().err.splitlines()  # more between, if it takes long
        assert "4 files" in first
        assert last.startswith(f"read {number} documents,")
        return lines

    texts, ids = read(2), read(3, "--column", "id", "--max_documents", "3")
    assert len(ids) == 3
    assert texts != ids[:2]


def by_name(*flags):
    parser = argparse.ArgumentParser()
    corpus.add_arguments(parser, required=True)
    found = corpus.lines_by_name(parser.parse_args(flags))
    return {name: list(lines) for name, lines in found.items()}


def test_tasks_are_read_as_they_read_their_corpora(tmp_path):
    """Each by itself, with its own normalization."""
    names = ["ro_mini_span_corruption", "ro_mini_no_spaces_span_corruption"]
    found = by_name("--task", *names, "--module", "tasks.romanian")
    assert list(found) == names
    (lines,) = by_name("--corpus", MINI, "--cedilla").values()
    assert found[names[0]] == lines
    assert not any(" " in line for line in found[names[1]])


def test_a_corpus_without_text_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("\n \n")
    with refuses() as refusal:
        by_name("--corpus", str(tmp_path / "a.txt"))
    assert "a.txt" in refusal.value.fault


def test_a_sample_is_uniform_and_the_same_for_a_seed():
    found = [corpus.sample_lines(map(str, range(10)), 3, seed) for seed in range(3000)]
    assert found[5] == corpus.sample_lines(map(str, range(10)), 3, 5)
    assert all(len({*sample}) == 3 for sample in found)
    counts = collections.Counter(line for sample in found for line in sample)
    # 3,000 draws with probability 0.3: five standard deviations are 126.
    assert all(abs(counts[str(line)] - 900) < 126 for line in range(10))
    assert corpus.sample_lines(["a", "b"], 3, 0) == ["a", "b"]


@pytest.mark.parametrize("most", [0, 1, 9, 10, 500, 1014, 1015, 5000])
def test_a_sample_of_characters_is_as_long_as_it_may_be_and_drawn_from_all(most):
    lines = ["x" * (n % 20) for n in range(97)]
    count = lambda some: sum(len(line) + 1 for line in some)
    sample = corpus.sample_characters(lines, most)
    assert count(sample) <= most
    if most >= count(lines):
        assert sample == lines
    else:
        assert count(sample) > most - 20
        assert not collections.Counter(sample) - collections.Counter(lines)
    assert sample == corpus.sample_characters(lines, most)
    first = {corpus.sample_characters([*"abcde"], 2, seed)[0] for seed in range(100)}
    assert first == {*"abcde"}


def test_folders_and_lists_of_files_are_read_as_a_task_reads_them(tmp_path):
    for name, text in (("train-0.txt", "unu"), ("train-1.txt", "doi"), ("dev.txt", "trei")):
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "all.map").write_text("train-1.txt\ndev.txt\n")
    assert list(corpus.read_documents(str(tmp_path))) == ["unu", "doi"]
    assert list(corpus.read_documents(str(tmp_path), split="dev")) == ["trei"]
    assert list(corpus.read_documents(f"@{tmp_path}/all.map")) == ["trei", "doi"]


@pytest.mark.filterwarnings("ignore")
def test_records_that_a_task_skips_are_reported(tmp_path, caplog):
    (tmp_path / "a.jsonl").write_text('{"text": "un rând"}\n{bad\n')
    assert list(corpus.read_documents(str(tmp_path / "a.jsonl"))) == ["un rând"]
    assert "1 malformed" in caplog.text


@pytest.mark.parametrize(("documents", "found"), [(None, 30), ("%", 10), ("files", 1)])
def test_plain_text_is_divided_as_a_task_divides_it(tmp_path, documents, found, capsys):
    text = "".join(f"unu {i}\ndoi {i}\n%\n" for i in range(10))
    (tmp_path / "a.txt").write_text(text)
    assert len([*corpus.read_documents(f"{tmp_path}/a.txt", documents=documents)]) == found
    assert ("--documents=%" in capsys.readouterr().err) == (documents is None)


def test_a_sample_is_spread_over_all_files_and_the_same_every_time(tmp_path):
    for file in range(10):
        rows = [json.dumps({"text": f"{file} {row}"}) for row in range(20)]
        (tmp_path / f"train-{file:02}.jsonl").write_text("\n".join(rows))
    read = lambda n=None: list(corpus.read_documents(str(tmp_path), max_documents=n))
    found = read(40)
    assert found == read(40)
    assert len(set(found)) == 40
    assert len({text.split()[0] for text in found}) == 10
    assert sorted(read(10_000)) == sorted(read())
    assert {text.split()[0] for text in read()[:20]} == {"0"}, "otherwise in their order"
