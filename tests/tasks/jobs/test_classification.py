"""Classes are one token each, metrics are counted by hand, long questions keep both ends."""

import csv
import random
import re

import pytest
import seqio

import gin
from tasks import vocabularies
from tasks.jobs import classification
from tasks.jobs.classification import class_ids, scores
from tasks.rows import Rows
from vocabulary.train import train_vocabulary

MINI = vocabularies.sentencepiece(vocabularies.ro_mini_model)
CLASSES = ("n", "l", "h")


def test_metrics_by_hand():
    targets = ["n", "n", "l", "h", "h", "h"]
    predictions = ["n", "l", "l", "h", "n ", "what"]
    found = scores(targets, predictions, CLASSES)
    assert found["accuracy"] == pytest.approx(3 / 6)
    assert found["f1/n"] == pytest.approx(2 / (2 + 2))
    assert found["f1/l"] == pytest.approx(2 / (1 + 2))
    assert found["f1/h"] == pytest.approx(2 / (3 + 1))
    assert found["mean_f1"] == pytest.approx((1 / 2 + 2 / 3 + 1 / 2) / 3)
    confusion = {name: n for name, n in found.items() if name.startswith("confusion/") and n}
    assert confusion == {"confusion/n/n": 1, "confusion/n/l": 1, "confusion/l/l": 1} | {
        "confusion/h/h": 1,
        "confusion/h/n": 1,
        "confusion/h/(no class)": 1,
    }


def test_a_class_called_other_differs_from_no_class():
    found = scores(["spam", "other"], ["nonsense", "other"], ("spam", "other"))
    assert found["accuracy"] == 0.5
    assert scores(["n"], ["n"], CLASSES)["f1/h"] == scores([], [], CLASSES)["accuracy"] == 0
    assert (found["f1/spam"], found["f1/other"]) == (0, 1)
    confusion = {name: n for name, n in found.items() if name.startswith("confusion/") and n}
    assert confusion == {"confusion/spam/(no class)": 1, "confusion/other/other": 1}
    with pytest.raises(ValueError, match="but must be one of its pieces"):
        class_ids(MINI, (classification.OTHER, "n"))


def test_a_class_is_one_token_and_another_is_refused_with_another_name():
    assert len(set(class_ids(MINI, CLASSES))) == 3
    assert class_ids(vocabularies.byt5(), ("a", "b")) == (100, 101)
    with pytest.raises(ValueError, match=r"'none' is 3 tokens .* call it 'no?n?'"):
        class_ids(MINI, ("none", "mare"))
    with pytest.raises(ValueError, match=r"'low' is 3 tokens .* call it 'lo?'"):
        class_ids(vocabularies.byt5(), ("n", "low"))
    with pytest.raises(ValueError, match="call it 'B' or 'C' or 'D'"):  # A is taken
        class_ids(vocabularies.byt5(), ("A", "ăă"))


def test_a_class_in_letters_that_are_no_pieces_is_refused_with_the_nearest_pieces(tmp_path):
    rng, letters = random.Random(0), "αβγδεζηθικλμνξοπρστυφχψω"
    others = ["".join(rng.choices(letters, k=rng.randint(2, 7))) for _ in range(300)]
    known = ["θετική", "θετικός", "αρνητικός", "δεν"]
    lines = [" ".join(known + rng.choices(others, k=4)) for _ in range(1000)]
    model = train_vocabulary(lines, 256, required_characters="", byte_fallback=False)
    (tmp_path / "el.model").write_bytes(model.SerializeToString())
    greek = seqio.SentencePieceVocabulary(str(tmp_path / "el.model"), extra_ids=0)
    with pytest.raises(ValueError, match="call it 'θετικός' or ") as error:
        class_ids(greek, ("θετικές", "δεν"))
    suggested = re.findall(r"'([^']+)'", str(error.value).partition("call it")[2].split(",")[0])
    assert len(class_ids(greek, suggested)) == len(suggested) > 1


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (("mare", "mare"), "must be distinct"),
        (("a",), "two names or more"),
        ("abc", "'abc', but must"),
    ],
)
def test_classes_that_are_the_same_token_are_refused(classes, said):
    with pytest.raises(ValueError, match=said):
        class_ids(MINI, classes)


def test_the_decoder_is_given_the_tasks_own_classes():
    ids = classification.ids_of("quality_tiny")
    assert ids() == class_ids(MINI, CLASSES)
    with pytest.raises(
        ValueError, match=r"ids_of.task is 'ro_mini', which is not a classification task"
    ):
        classification.ids_of("ro_mini")()


@pytest.fixture
def questions(tmp_path):
    """Two CSV files as the set has them."""
    for name, labels in (("train", ["LQ_CLOSE", "LQ_EDIT", "HQ", "??"]), ("valid", ["HQ"])):
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["Id", "Title", "Body", "Tags", "CreationDate", "Y"])
            for i in range(40):
                body = f"<p>body {i} &lt;x&gt;</p>\n<pre><code>List</code></pre>"
                title = f"Why List<String> {i}?"
                rows.writerow([i, title, body, "", "", labels[i % len(labels)]])
    place = "tasks.jobs.classification.quality_files"
    with gin.unlock_config():
        gin.bind_parameter(f"{place}.train", str(tmp_path / "train.csv"))
        gin.bind_parameter(f"{place}.test", str(tmp_path / "valid.csv"))
    yield
    gin.clear_config()


def test_questions_become_text_and_a_class(questions):
    task = classification.add(
        "quality_test",
        classification.quality(classification.INITIALS),
        MINI,
        CLASSES,
        classification.PREFIX,
    )
    try:
        splits = {
            split: list(task.get_dataset(None, split, shuffle=False).as_numpy_iterator())
            for split in ("train", "validation", "test")
        }
    finally:
        seqio.TaskRegistry.remove("quality_test")
    assert len(splits["train"]) + len(splits["validation"]) == 30  # ten have an unknown label
    assert len(splits["test"]) == 40
    row = splits["test"][0]
    text = row["inputs_pretokenized"].decode()
    assert text == "quality: Why List<String> 0?\nbody 0 <x>\nList"
    assert row["targets"].tolist() == [class_ids(MINI, CLASSES)[2], 1]
    assert task.source.record_counts()["skipped_unknown_label"] >= 10


def mails(tmp_path, **settings):
    text = "".join(f'{{"t": "mail {i}", "y": {i % 3}}}\n' for i in range(30))
    (tmp_path / "train.jsonl").write_text(text)
    columns = {"inputs": "t", "targets": "y"}
    return Rows(files={"train": str(tmp_path / "train.jsonl")}, columns=columns, **settings)


def test_rows_of_no_class_are_skipped_and_counted(tmp_path):
    source = mails(tmp_path)
    lengths = {"inputs": 4, "targets": 2}
    task = classification.add(
        "mails_test", source, vocabularies.byt5(), ("0", "1"), lengths=lengths
    )
    try:
        rows = list(task.get_dataset(None, "train", shuffle=False).as_numpy_iterator())
    finally:
        seqio.TaskRegistry.remove("mails_test")
    assert {row["targets_pretokenized"] for row in rows} == {b"0", b"1"}
    assert {len(row["inputs"]) for row in rows} == {4}  # evaluation's lengths are those given
    assert task.source.counter.counts()["skipped_unknown_label"] == 10
    assert source.counter.counts()["read"] == 0  # another task's columns may keep other rows
    assert source.column.extract({"t": "a", "y": "2"}) == "a\x1f2"  # for others it is as it was


def test_a_file_of_other_labels_is_refused_with_those_met_and_those_known(tmp_path):
    source = mails(tmp_path, labels={"targets": {"good": "yes", "bad": "no"}})
    said = r"skipped 30 unknown label \(found '0', '1', '2'; known are 'good', 'bad'\): list them"
    with pytest.raises(ValueError, match=said):
        source.peek()


def test_labels_that_are_no_class_are_refused_at_once(tmp_path):
    source = mails(tmp_path, labels={"targets": {"0": "no", "1": "yes", "2": "perhaps"}})
    with pytest.raises(ValueError, match=r"label '2' is called 'perhaps', which is not one of"):
        classification.add("mails_refused", source, vocabularies.byt5(), ("no", "yes"))
