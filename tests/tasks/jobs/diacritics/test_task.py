"""Diacritics tasks give all of the text, bare and original, in pieces that fit."""

import io
import itertools
import json
import random
import sys

import pytest
import seqio

import gin
from tasks import vocabularies
from tasks.corpus.source import CorpusSource
from tasks.jobs.diacritics import restore
from tasks.jobs.diacritics import task as diacritics
from tasks.jobs.diacritics.letters import alphabet

TEXTS = ["Fața vine. " * 30, "Ştie şi ea, „ţara” însă…\nNu.", "x" * 300]
LENGTHS = {"inputs": 48, "targets": 48}


@pytest.fixture(params=["pieces", "bytes"])
def task(request, tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    vocabulary = vocabularies.ro_mini_model if request.param == "pieces" else vocabularies.byt5()
    name = f"diacritics_test_{request.param}"
    for each in (name, f"{name}_lines"):
        seqio.TaskRegistry.remove(each)
    return diacritics.add(name, CorpusSource(files={"train": str(path)}, held_out={}), vocabulary)


@pytest.mark.parametrize("lengths", [LENGTHS, None])
def test_all_text_is_there_and_nothing_is_too_long(task, lengths):
    rows = list(task.get_dataset(lengths, "train", shuffle=False).as_numpy_iterator())
    most = (lengths or diacritics.LENGTHS)["inputs"]
    texts = [row["targets_pretokenized"].decode() for row in rows]
    for row, text in zip(rows, texts, strict=True):
        assert row["inputs_pretokenized"].decode() == alphabet("ro").bare(text)
        for side in ("inputs", "targets"):
            assert len(row[side]) <= most
            assert row[side][-1] == 1  # EOS: nothing was cut off
    wanted = "".join(" ".join(TEXTS).replace("ş", "ș").replace("Ş", "Ș").replace("ţ", "ț").split())
    assert "".join("".join(texts).split()) == wanted
    assert len(rows) >= 3


def test_hosts_share_the_pieces_each_once():
    task = seqio.TaskRegistry.get("ro_mini_diacritics")

    def pieces(shard_info=None):
        rows = task.get_dataset(LENGTHS, "train", shuffle=False, shard_info=shard_info)
        return [row["targets_pretokenized"] for row in rows.as_numpy_iterator()]

    shares = [pieces(seqio.ShardInfo(index, 3)) for index in range(3)]
    assert all(shares)
    assert sorted(itertools.chain(*shares)) == sorted(pieces())


@pytest.mark.parametrize("language", ["ro", "vi", "tr"])
def test_bytes_leave_room_for_every_letter_to_be_restored(language):
    """Whatever a model that keeps the letters makes of a bare text, it has no more bytes."""
    count = diacritics.token_count(vocabularies.byt5(), language)
    forms = alphabet(language).forms
    spell = lambda letter, n: (form := forms.get(letter, letter))[n % len(form)]
    text = "Fata si tatii, Ana duc IARBA. 日本 5 €"
    for n in range(24):
        spelled = "".join(spell(letter, n) for letter in text)
        assert len(spelled.encode()) <= count([text])[0] == count([spelled])[0]


def test_pieces_end_with_sentences(task):
    rows = task.get_dataset(LENGTHS, "train", shuffle=False).as_numpy_iterator()
    for row in rows:
        text = row["targets_pretokenized"].decode()
        assert text.endswith((".", "…", "x")) or text == "Știe și ea, „țara” însă…"


def test_the_metric_counts_the_baseline_on_the_training_split(task):
    found = task.metric_fns[0](["Fața vine"], ["Fața vine"])
    assert found["word_accuracy"] == found["frequent_word_accuracy"] == 1
    assert found["copy_word_accuracy"] == 0.5


@pytest.fixture
def rows_of(tmp_path, monkeypatch):
    """Function from lines to what a `_lines` task makes of them."""

    def of(task, *lines):
        monkeypatch.setattr(
            diacritics.LINES.catalog, "_listings", {}
        )  # one process reads one file else
        (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines), newline="\n")
        with gin.unlock_config():
            gin.bind_parameter("tasks.jobs.diacritics.lines.path", str(tmp_path / "lines.txt"))
        dataset = seqio.TaskRegistry.get(task).get_dataset(LENGTHS, "test", shuffle=False)
        return list(dataset.as_numpy_iterator())

    yield of
    gin.clear_config()


def shown(rows):
    return [row["inputs_pretokenized"].decode() for row in rows]


def test_lines_of_a_file_are_read_by_the_task_beside(rows_of):
    rows = rows_of("ro_mini_diacritics_lines", "Faţa  mea, é.", "", "Fata vine")
    assert shown(rows) == ["Fața mea, é.", "Fata vine"]  # as given, for who looks at it
    task = seqio.TaskRegistry.get("ro_mini_diacritics")
    encode = task.output_features["inputs"].vocabulary.encode
    bare = ["Fata mea, é.", "Fata vine"]  # what the model has learned to read
    assert [row["inputs"].tolist() for row in rows] == [[*encode(text), 1] for text in bare]


@pytest.mark.parametrize("task", ["ro_mini_diacritics", "ro_mini_diacritics_byt5"])
@pytest.mark.parametrize("line", ["Fața vine mîine cu é, ü și İ", "Fața vine. " * 20 + "țața" * 9])
def test_letters_of_the_input_are_kept_whatever_a_model_predicts(rows_of, task, line):
    rows = rows_of(f"{task}_lines", line)
    assert len(rows) > 1 or len(line) < 50
    vocabulary = seqio.TaskRegistry.get(task).output_features["targets"].vocabulary
    draw = random.Random(0)
    for change in (lambda ids: [], lambda ids: ids[::-1], lambda ids: draw.choices(ids, k=30)):
        decoded = [vocabulary.decode(change(row["targets"].tolist())) for row in rows]
        languages = [row["language_pretokenized"].decode() for row in rows]
        pieces = zip(shown(rows), decoded, languages, strict=True)
        (found,) = restore.lines([line], pieces)
        assert alphabet("ro").bare(found) == alphabet("ro").bare(line)
        assert all(a == b for a, b in zip(found, line, strict=True) if b in "țîéüșİ")


def test_lines_are_the_same_for_all_who_read_them(rows_of, monkeypatch, capsys, tmp_path):
    """What Python's or Unicode's lines would end with is a blank like others."""
    texts = [
        "una\u2028doua",
        "",
        "\ufefftrei\fpatru\x85cinci\x1dsase",
        "sapte\ropt\r",
        " \v",
        "\u2029x",
    ]
    given = "\n".join(texts).replace("\r\n", "\r\r\n") + "\r\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    restore.main(["read"])
    lines = capsys.readouterr().out
    texts[2] = texts[2][1:]  # a mark of the encoding, not of the text
    assert lines == "".join(f"{text}\n" for text in texts)
    rows = rows_of("ro_mini_diacritics_lines", *lines.split("\n")[:-1])
    made = [
        {
            "inputs": {"inputs_pretokenized": text, "language_pretokenized": "ro"},
            "prediction": text.replace("a", "ă"),
        }
        for text in shown(rows)
    ]
    (tmp_path / "made").write_text("\n".join(map(json.dumps, made)))
    restore.main(["write", str(tmp_path / "lines.txt"), str(tmp_path / "made")])
    assert capsys.readouterr() == (
        "".join("{}\n".format(text.replace("a", "ă")) for text in texts),
        "",
    )


def test_the_tiny_recipe_is_measured_on_pieces_as_long_as_it_learns():
    task = seqio.TaskRegistry.get("ro_mini_diacritics")
    rows = task.get_dataset(None, "validation", shuffle=False).take(50).as_numpy_iterator()
    assert 16 < max(len(row["inputs"]) for row in rows) <= 32
