"""Near-duplicates are left out, whatever interrupts it, and the rest is a corpus again."""

import json
import random

import pytest
import seqio

from command_line import extras
from fakes.refusals import refused
from tasks import corpora, deduplicate, vocabularies
from tasks.documents import Column
from tasks.sources import CorpusSource

WORDS = [f"cuv{a}{b}" for a in "abcdefghijklmnop" for b in "abcdefghijklmnop"]  # numbers are one
COUNT = 24


def texts() -> list[str]:
    """24 documents of 120 words; the last 8 differ from the first 8 in a word at the end."""
    draw = random.Random(0)
    made = [" ".join(draw.choices(WORDS, k=120)) for _ in range(COUNT - 8)]
    return made + [f"{text} și altceva." for text in made[:8]]


@pytest.fixture
def task(tmp_path, request):
    """The name of a task whose corpus has two files, each with an empty record."""
    folder, found = tmp_path / "corpus", texts()
    folder.mkdir()
    for name, some in (("train-0", found[:10]), ("train-1", found[10:])):
        lines = [json.dumps({"text": text}) for text in (*some, "")]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    name = f"near_duplicates_{abs(hash(request.node.name))}"
    source = CorpusSource(str(folder), column=Column("text"), splits=("train",))
    corpora.add(name, source, vocabularies.ro_mini_model)
    yield name
    seqio.TaskRegistry.remove(name)


def deduplicated(task, folder, capsys) -> str:
    arguments = ["--task", task, "--module", "tasks.romanian", "--to", str(folder)]
    assert deduplicate.main([*arguments, "--workers", "1"]) == 0
    return capsys.readouterr().out


def kept(folder) -> list[str]:
    dataset = CorpusSource(str(folder), splits=("train",)).get_dataset("train", False)
    return [row["text"].decode() for row in dataset.as_numpy_iterator()]


def test_of_near_duplicates_one_is_kept_and_all_is_counted(task, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(deduplicate, "PART_BYTES", 5_000)
    said = deduplicated(task, tmp_path / "out", capsys)
    assert "kept: 4 of 4" in said
    expected = "26 records read, skipped 2 empty; kept 16 of 24 documents, near-duplicates: 8"
    assert expected in said
    found, every = kept(tmp_path / "out"), texts()
    assert len(set(found)) == 16
    assert set(every[8:16]) <= set(found) <= set(every)
    assert all((every[i] in found) != (every[16 + i] in found) for i in range(8))
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files[0] == "deduplicated.json"
    assert files[1] == "train-00000-of-00004.jsonl.zst"
    assert len(files) == 5, "what was only needed on the way is gone"
    again = deduplicated(task, tmp_path / "out", capsys)
    assert expected in again
    assert "signatures" not in again


@pytest.mark.parametrize("step", deduplicate.STEPS)
def test_after_an_interruption_it_continues(step, task, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(deduplicate, "PART_BYTES", 9_000)
    out, once = tmp_path / "out", tmp_path / "once"
    deduplicated(task, once, capsys)
    function, calls = deduplicate.STEPS[step], []

    def interrupted(job, item):
        calls.append(item)
        counts = function(job, item)
        if len(calls) == 2 or step == "clusters":  # what it wrote does not count yet
            raise KeyboardInterrupt
        return counts

    with monkeypatch.context() as patch:
        patch.setitem(deduplicate.STEPS, step, interrupted)
        arguments = ["--task", task, "--module", "tasks.romanian", "--to", str(out)]
        assert deduplicate.main([*arguments, "--workers", "1"]) == 130
    assert "the same command continues from here" in capsys.readouterr().err
    assert not list(out.glob("*.zst"))
    patched = []
    monkeypatch.setitem(deduplicate.STEPS, step, lambda *a: patched.append(a[1]) or function(*a))
    deduplicated(task, out, capsys)
    assert calls[0] not in patched or step == "clusters", "what is done is not done twice"
    assert calls[-1] in patched
    assert (out / "deduplicated.json").read_text() == (once / "deduplicated.json").read_text()
    assert kept(out) == kept(once)


def test_a_corpus_that_has_changed_is_refused(task, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    arguments = ["--task", task, "--module", "tasks.romanian", "--to", str(out), "--workers", "1"]
    with monkeypatch.context() as patch:
        patch.setitem(deduplicate.STEPS, "kept", lambda *_: 1 / 0)
        with pytest.raises(SystemExit):
            deduplicate.main(arguments)
    column = seqio.TaskRegistry.get(task).source.column
    column.min_chars = 1_000
    with refused(capsys, r"part 0 of task .* has 0 documents, but had 24 when"):
        deduplicate.main(arguments)
    column.min_chars = 0
    with (tmp_path / "corpus" / "train-1.jsonl").open("a") as file:
        file.write('{"text": "nou"}\n')
    source = seqio.TaskRegistry.get(task).source
    source._contents.clear()
    source._listed.clear()
    with refused(capsys, r"--to is .* of another corpus is deduplicated: name another folder"):
        deduplicate.main(arguments)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--task", "nosuch", "--to", "{folder}/new"], "--task is 'nosuch'"),
        (["--task", "{task}", "--to", "{folder}"], "--to is .*, which holds files"),
        (
            ["--task", "{task}", "--to", "gs://a/b"],
            "--to is gs://a/b, but this command writes to disks only",
        ),
        (["--task", "{task}", "--to", "{folder}/new", "--split", "dev"], "no split 'dev'"),
    ],
)
def test_a_mistake_is_one_sentence(flags, message, task, tmp_path, capsys):
    filled = [flag.format(task=task, folder=tmp_path) for flag in flags]
    with refused(capsys, message):
        deduplicate.main([*filled, "--module", "tasks.romanian"])
    assert not (tmp_path / "new").exists()


def test_without_datatrove_one_sentence_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with refused(capsys, r"datatrove is not installed: bash launch/setup\.sh --clean"):
        deduplicate.main(["--task", "a", "--to", str(tmp_path / "new")])


def test_words_are_those_of_any_script():
    assert deduplicate._WORD.findall("Ana are 2 mere!") == ["Ana", "are", "2", "mere"]
    assert deduplicate._WORD.findall("我有iPhone手机") == ["我", "有", "iPhone", "手", "机"]


def test_what_cannot_be_cut_has_no_more_parts_than_files(tmp_path, monkeypatch):
    (tmp_path / "train.csv").write_text("text\n" + "un text\n" * 3_000)
    monkeypatch.setattr(deduplicate, "PART_BYTES", 5_000)
    source = CorpusSource(str(tmp_path), splits=("train",))
    assert deduplicate.parts_of(source, "train") == 1
