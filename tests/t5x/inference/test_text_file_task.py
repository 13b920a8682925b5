"""Every line of a file is an example, in order and unchanged."""

import io
import json
import types

import pytest
import seqio

from fakes import toy
from fakes.refuses import refuses
from t5x.inference.text_file_task import line_task, longer_than

BYTES = seqio.ByteVocabulary()
LENGTHS = {"inputs": 16, "targets": 8}


def examples(path, **settings):
    task = line_task(str(path), BYTES, BYTES, "test", **settings)
    dataset = task.get_dataset(LENGTHS, "test", shuffle=False)
    return task, list(dataset.as_numpy_iterator())


def texts(found, name="inputs"):
    return [BYTES.decode(one[name].tolist()) for one in found]


@pytest.mark.parametrize("content", ["și\n\nb", "și\n\nb\n", "și\r\n\r\nb\r\n"])
def test_a_line_is_an_input_and_an_empty_one_too(tmp_path, content):
    path = tmp_path / "questions.txt"
    path.write_bytes(content.encode())
    task, found = examples(path)
    assert task.name == "questions"
    assert texts(found) == ["și", "", "b"]
    assert all(one["inputs"][-1] == 1 and one["targets"].tolist() == [1] for one in found)
    assert "targets_pretokenized" not in found[0]


@pytest.mark.parametrize(
    ("file", "name"), [("my-questions.txt", "my_questions"), ("q (1).txt", "q__1_")]
)
def test_any_name_and_a_byte_order_mark_are_taken(tmp_path, file, name):
    (tmp_path / file).write_text("\ufeffa\nb\n")
    task, found = examples(tmp_path / file)
    assert (task.name, texts(found)) == (name, ["a", "b"])


def test_a_prefix_is_encoded_and_not_shown(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x\ny\n")
    task, found = examples(path, prefix="q: ")
    assert texts(found) == ["q: x", "q: y"]
    assert [one["inputs_pretokenized"] for one in found] == [b"x", b"y"]
    assert longer_than(task, {"inputs": 4, "targets": 1}, "q: ") == [1, 2]
    assert longer_than(task, {"inputs": 5, "targets": 1}, "q: ") == []


def test_targets_of_a_classifier_are_labels_and_encoded_as_their_pieces(tmp_path):
    labels = {"yes, but late": "y", "no": "n"}
    like = toy.classifier("mails", labels)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"inputs": "a", "targets": t}) + "\n" for t in labels))
    task, found = examples(path, like=like)
    assert texts(found, "targets") == ["y", "n"]
    assert [one["targets_pretokenized"].decode() for one in found] == [*labels]
    assert longer_than(task, {"inputs": 4, "targets": 2}) == []
    path.write_text('{"inputs": "a", "targets": "maybe"}\n')
    with refuses(f"Line 1 of {path}") as refusal:
        examples(path, like=like)
    assert "'maybe'" in refusal.value.why
    assert "'yes, but late', 'no'" in refusal.value.to_set


def test_an_input_that_is_cut_has_its_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x" * 40)
    assert examples(path)[1][0]["inputs"].tolist() == [ord("x") + 3] * 15 + [1]


def test_json_has_inputs_and_perhaps_targets(tmp_path):
    path = tmp_path / "pairs.jsonl"
    lines = [{"inputs": "a", "targets": "b", "id": 7}, {"targets": "", "inputs": "\n"}]
    path.write_text("\n".join(map(json.dumps, lines)))
    _, found = examples(path)
    assert (texts(found), texts(found, "targets")) == (["a", "\n"], ["b", ""])
    assert found[0]["targets_pretokenized"] == b"b"


def test_standard_input_is_text(monkeypatch):
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(b"one\ntwo\n")))
    task, found = examples("-")
    assert (task.name, texts(found)) == ("stdin", ["one", "two"])


def test_the_fingerprint_is_of_the_content(tmp_path):
    prints = []
    for name, text in [("a.txt", "x"), ("b.txt", "x"), ("c.txt", "y")]:
        (tmp_path / name).write_text(text)
        prints.append(examples(tmp_path / name)[0].source.fingerprint)
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.txt", b"", "infer_script.infer.input_file"),
        ("a.txt", b"fine\n\xff\xfe", "Line 2"),
        ("a.jsonl", b'{"inputs": "a"}\nb', "Line 2"),
        ("a.jsonl", b'{"input": "a"}', "Line 1"),
        ("a.jsonl", b'["a"]', "Line 1"),
        ("a.jsonl", b'{"inputs": "a", "targets": 3}', "Line 1"),
        ("a.jsonl", b'{"inputs": "a"}\n{"inputs": "b", "targets": "c"}', "Line 2"),
    ],
)
def test_malformed_files_are_refused(tmp_path, name, content, place):
    (tmp_path / name).write_bytes(content)
    with refuses(place if place.endswith("file") else f"{place} of {tmp_path / name}") as refusal:
        examples(tmp_path / name)
    assert "\n" not in str(refusal.value)
