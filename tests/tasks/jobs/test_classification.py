"""Classes are one token each, metrics are counted by hand, long questions keep both ends."""

import csv
import json

import pytest
import seqio

import gin
from fakes.refuses import refuses
from tasks import vocabularies
from tasks.jobs import classification
from tasks.jobs.classification import pieces_of, scores
from tasks.rows import Rows

MINI = vocabularies.sentencepiece(vocabularies.ro_mini_model)
BYTES = vocabularies.byt5()
CLASSES = ("n", "l", "h")
LONG = ("no", "yes, but late", "yes/no", "так", "遅い", "n", "none")


def test_metrics_by_hand():
    targets = ["n", "n", "l", "h", "h", "h"]
    predictions = ["n", "l", "l", "h", "n ", "what"]
    found = scores(targets, predictions, CLASSES)
    assert found["accuracy"] == pytest.approx(3 / 6)
    assert found["f1/n"] == pytest.approx(2 / (2 + 2))
    assert found["f1/l"] == pytest.approx(2 / (1 + 2))
    assert found["f1/h"] == pytest.approx(2 / (3 + 1))
    assert found["mean_f1"] == pytest.approx((1 / 2 + 2 / 3 + 1 / 2) / 3)
    always = scores(targets, ["h"] * 6, CLASSES)  # the most frequent class
    assert found["baseline/accuracy"] == pytest.approx(always["accuracy"])
    assert found["baseline/mean_f1"] == pytest.approx(always["mean_f1"])
    confusion = {name: n for name, n in found.items() if name.startswith("confusion/") and n}
    assert confusion == {"confusion/n/n": 1, "confusion/n/l": 1, "confusion/l/l": 1} | {
        "confusion/h/h": 1,
        "confusion/h/n": 1,
        "confusion/h/(no class)": 1,
    }


@pytest.mark.parametrize(("number", "matrix"), [(50, 50 * 51), (1000, 0)])
def test_the_metrics_of_many_classes_are_as_many_as_the_classes(number, matrix):
    classes = [f"class {i}" for i in range(number)]
    metrics = scores(classes, classes, classes)
    assert metrics["accuracy"] == metrics["mean_f1"] == 1
    assert len(metrics) == number + 4 + matrix


def test_a_class_called_other_differs_from_no_class():
    found = scores(["spam", "other"], ["nonsense", "other"], ("spam", "other"))
    assert found["accuracy"] == 0.5
    assert scores(["n"], ["n"], CLASSES)["f1/h"] == scores([], [], CLASSES)["accuracy"] == 0
    assert (found["f1/spam"], found["f1/other"]) == (0, 1)
    confusion = {name: n for name, n in found.items() if name.startswith("confusion/") and n}
    assert confusion == {"confusion/spam/(no class)": 1, "confusion/other/other": 1}


@pytest.mark.parametrize("vocabulary", [MINI, BYTES])
def test_labels_of_any_length_and_script_are_one_token_each(vocabulary):
    found = pieces_of(vocabulary, LONG)
    assert [*found] == [*LONG]
    ids = [vocabulary.encode(piece) for piece in found.values()]
    assert {len(each) for each in ids} == {1}
    assert len({*map(tuple, ids)} - {(vocabulary.unk_id,)}) == len(LONG)
    assert [vocabulary.decode(each).strip() for each in ids] == [*found.values()]
    assert found["n"] == "n"  # one token already


def test_labels_that_are_one_token_keep_it_and_others_begin_as_they_do():
    assert pieces_of(MINI, ("none", "low", "high")) == {"none": "n", "low": "l", "high": "h"}
    assert pieces_of(MINI, ("none", "n"))["n"] == "n"
    assert pieces_of(BYTES, ("a", "b")) == {"a": "a", "b": "b"}


def test_more_classes_than_pieces_are_refused():
    with refuses("the vocabulary", "ByteVocabulary"):
        pieces_of(BYTES, [f"class {i}" for i in range(300)])


@pytest.mark.parametrize(
    "classes", [("mare", "mare"), ("a",), (), "abc", ("a", "b "), ("a", ""), (0, 1)]
)
def test_what_is_no_two_distinct_labels_is_refused(tmp_path, classes):
    with refuses("classes", classes, where="task mails_refused"):
        classification.add("mails_refused", mails(tmp_path), BYTES, classes)


def test_the_decoder_is_given_the_tasks_own_classes():
    ids = classification.ids_of("quality_tiny")
    assert ids() == tuple(MINI.encode(piece)[0] for piece in CLASSES)
    for task in ("ro_mini", "nothing"):
        with refuses("tasks.jobs.classification.ids_of.task", task):
            classification.ids_of(task)()


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
        "quality_test", classification.quality(), MINI, prefix=classification.PREFIX
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
    assert row["targets"].tolist() == [*MINI.encode("h"), 1]
    assert row["targets_pretokenized"] == b"high"
    assert task.source.record_counts()["skipped_unknown_label"] >= 10


def mails(tmp_path, **settings):
    text = "".join(f'{{"t": "mail {i}", "y": {i % 3}}}\n' for i in range(30))
    (tmp_path / "train.jsonl").write_text(text)
    columns = {"inputs": "t", "targets": "y"}
    return Rows(files={"train": str(tmp_path / "train.jsonl")}, columns=columns, **settings)


def test_people_see_the_labels_and_the_model_a_piece(tmp_path):
    names = {"0": "так", "1": "yes, but late", "2": "science/technology"}
    task = classification.add("mails_seen", mails(tmp_path, labels={"targets": names}), MINI)
    try:
        rows = list(task.get_dataset(None, "train", shuffle=False).as_numpy_iterator())
    finally:
        seqio.TaskRegistry.remove("mails_seen")
    shown = {row["targets_pretokenized"].decode() for row in rows}
    assert shown == {*names.values()}
    for row in rows:
        target = row["targets_pretokenized"].decode()
        ids = row["targets"].tolist()
        assert len(ids) == 2
        assert task.postprocess_fn(MINI.decode(ids), is_target=False) == target
        assert task.postprocess_fn(target, example=row, is_target=True) == target
    targets = [row["targets_pretokenized"].decode() for row in rows]
    found = task.metric_fns[0](targets, targets)
    assert [found[f"f1/{name}"] for name in names.values()] == [1.0] * 3


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
    assert source.column.extract({"t": "a", "y": "2"}) == ("a", "2")  # for others it is as it was


def test_rows_whose_label_is_a_number_are_held_out_too(tmp_path):
    lines = [json.dumps({"t": f"text {i}", "y": i % 2}) + "\n" for i in range(1000)]
    (tmp_path / "mails.jsonl").write_text("".join(lines))
    columns = {"inputs": "t", "targets": "y"}
    source = Rows(str(tmp_path), columns=columns, held_out={"validation": 0.01})
    task = classification.add("mails_test", source, vocabularies.byt5(), ("0", "1"))
    try:
        read = {
            split: {row["inputs"] for row in task.source.get_dataset(split).as_numpy_iterator()}
            for split in ("train", "validation")
        }
    finally:
        seqio.TaskRegistry.remove("mails_test")
    assert read["validation"]
    assert not read["train"] & read["validation"]
    assert len(read["train"] | read["validation"]) == 1000


def test_a_file_of_other_labels_is_refused_with_those_met_and_those_known(tmp_path):
    source = mails(tmp_path, labels={"targets": {"good": "yes", "bad": "no"}})
    with refuses(f"{tmp_path}/train.jsonl") as refusal:
        source.peek()
    for label in ("'0', '1', '2'", "'good', 'bad'"):
        assert label in refusal.value.to_set


def test_labels_that_are_no_class_are_refused_at_once(tmp_path):
    source = mails(tmp_path, labels={"targets": {"0": "no", "1": "yes", "2": "perhaps"}})
    with pytest.raises(ValueError, match=r"label '2' is called 'perhaps', which is not one of"):
        classification.add("mails_refused", source, vocabularies.byt5(), ("no", "yes"))
