"""Texts and pairs become ids with a label at the first token; other labels are refused."""

import json

import pytest
import seqio
import tensorflow as tf

from fakes.tokenizer_files import WORDPIECE, byte_bpe
from tasks import labels, vocabularies
from tasks.rows import Rows

LENGTHS = {"inputs": 16, "targets": 16}
PIECES = vocabularies.tokenizer(WORDPIECE)
REVIEWS = [{"text": "Ana are mere bune.", "label": "da"}, {"text": "Ana doarme.", "label": "nu"}]
PAIRS = [{"a": "Ana doarme.", "b": "Ana nu doarme deloc, ci merge acasă.", "label": "nu"}]


@pytest.fixture
def added():
    """Registers tasks, and removes them at the end."""
    names = []

    def add(function, name, *given, **settings):
        names.append(name)
        return function(name, *given, **settings)

    yield add
    for name in names:
        if name in seqio.TaskRegistry.names():
            seqio.TaskRegistry.remove(name)


def rows(folder, found, columns, **settings):
    for split in ("train", "validation"):
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, found)))
    return Rows(str(folder), columns=columns, **settings)


def reviews(folder, found=REVIEWS, **settings):
    return rows(folder, found, {"inputs": "text", "targets": "label"}, **settings)


def examples(task, lengths=LENGTHS):
    dataset = task.get_dataset(lengths, "validation", shuffle=False)
    plain = lambda value: value if isinstance(value, bytes) else value.tolist()
    return [{k: plain(v) for k, v in e.items()} for e in dataset.as_numpy_iterator()]


def test_the_label_is_at_the_first_token(tmp_path, added):
    task = added(labels.text, "seen", reviews(tmp_path), WORDPIECE, ("da", "nu"))
    first, second = examples(task)
    ids = [2, *PIECES.encode("Ana are mere bune."), 3]
    assert first["inputs"] == ids
    assert first["targets"] == [1] + [0] * (len(ids) - 1)
    assert second["targets"][0] == 2
    assert first["loss_weights"] == [1] + [0] * (len(ids) - 1)
    assert "type_ids" not in first
    assert first["inputs_pretokenized"] == REVIEWS[0]["text"].encode()
    assert first["targets_pretokenized"] == b"da"


def test_long_texts_are_cut_and_counted(tmp_path, added):
    task = added(labels.text, "cut", reviews(tmp_path), WORDPIECE, ("da", "nu"))
    first, _ = examples(task, {"inputs": 5, "targets": 5})
    assert first["inputs"] == [2, *PIECES.encode(REVIEWS[0]["text"])[:3], 3]
    assert task.source.record_counts("validation", distinct=True)["cut_inputs"] == 2


def pair_task(tmp_path, added, name, tokenizer):
    source = rows(tmp_path, PAIRS, {"first": "a", "second": "b", "targets": "label"})
    return added(labels.text, name, source, tokenizer, ("da", "nu"))


def test_of_a_pair_the_longer_text_is_cut(tmp_path, added):
    (found,) = examples(pair_task(tmp_path, added, "pairs", WORDPIECE))
    a, b = PIECES.encode(PAIRS[0]["a"]), PIECES.encode(PAIRS[0]["b"])
    assert len(a) + len(b) > 13 >= 2 * len(a)
    assert found["inputs"] == [2, *a, 3, *b[: 13 - len(a)], 3]
    assert found["type_ids"] == [0] * (len(a) + 2) + [1] * (14 - len(a))
    assert found["inputs_pretokenized"].decode().split("\t") == [PAIRS[0]["a"], PAIRS[0]["b"]]


def test_pairs_are_joined_as_the_tokenizer_itself_joins_them(tmp_path, added):
    for name, folder in (("bert", WORDPIECE), ("roberta", byte_bpe(tmp_path / "bpe"))):
        task = pair_task(tmp_path, added, f"joined_{name}", folder)
        (found,) = examples(task, {"inputs": 200, "targets": 200})
        tokenizer = task.output_features["inputs"].vocabulary.tokenizer
        assert found["inputs"] == tokenizer.encode(PAIRS[0]["a"], PAIRS[0]["b"]).ids


def test_lines_of_a_file_need_no_label(added, tmp_path):
    task = added(labels.text, "lines", reviews(tmp_path), WORDPIECE, ("da", "nu"))
    (made,) = labels.examples(
        tf.data.Dataset.from_tensors({"inputs": "Ana doarme."}),
        task.output_features,
    ).as_numpy_iterator()
    assert made["inputs"].tolist() == [2, *PIECES.encode("Ana doarme."), 3]
    assert made["targets"].max() == 0
    assert made["loss_weights"].tolist() == [1] + [0] * (len(made["inputs"]) - 1)


def test_a_label_that_the_task_lacks_is_refused_before_a_run(tmp_path, added):
    found = [*REVIEWS, {"text": "Plouă.", "label": "poate"}]
    task = added(labels.text, "odd", reviews(tmp_path, found), WORDPIECE, ("da", "nu"))
    said = "task odd: a record of split 'train' is labelled 'poate', and the task's labels are 'da'"
    with pytest.raises(ValueError, match=said):
        task.check_split("train")
    chosen = reviews(tmp_path, found, labels={"targets": {"da": "da", "nu": "nu"}})
    added(labels.text, "chosen", chosen, WORDPIECE, ("da", "nu")).check_split("train")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("da",), "must list two names or more, all different"),
        (("da", "da"), "must list two names or more, all different"),
        ("danu", "must list two names or more"),
        (("da", " nu"), "' nu' is empty or begins or ends with a blank"),
    ],
)
def test_labels_that_are_none_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        labels.LabelVocabulary(given)


def test_columns_and_vocabularies_that_do_not_fit_are_refused(tmp_path, added):
    source = rows(tmp_path, REVIEWS, {"text": "text", "targets": "label"})
    with pytest.raises(ValueError, match="task bad labels rows: give its source the columns"):
        added(labels.text, "bad", source, WORDPIECE, ("da", "nu"))
    with pytest.raises(ValueError, match=r"'ro_mini', which is not a task made by tasks.labels"):
        labels.vocabulary("ro_mini")


def test_names_become_ids_from_1(tmp_path, added):
    known = labels.LabelVocabulary(("science fiction", "da"))
    assert known.encode("science fiction") == [1]
    assert known.decode([1, 0, 0]) == "science fiction"
    with pytest.raises(ValueError, match="'fiction' is not one of the labels 'science"):
        known.encode("fiction")
    assert known == labels.LabelVocabulary(("science fiction", "da"))
    assert known != labels.LabelVocabulary(("da", "science fiction"))
    added(labels.text, "named", reviews(tmp_path), WORDPIECE, ("da", "nu"))
    assert labels.vocabulary("named").labels == ("da", "nu")


NAMES = ("O", "B-PER", "I-PER")
WORDS = [{"words": ["Ana", "Ionescu", "doarme", "nemaipomenit"], "tags": [1, 2, 0, 0]}]
OF_TAGS = {"targets": {str(i): name for i, name in enumerate(NAMES)}}


def names_task(tmp_path, added, found, name="names", tokenizer=WORDPIECE, mapped=OF_TAGS):
    columns = {"inputs": "words", "targets": "tags"}
    lists = dict.fromkeys(("words", "tags"), labels.joined)
    source = rows(tmp_path, found, columns, lists=lists, labels=mapped)
    return added(labels.words, name, source, tokenizer, NAMES)


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_only_first_pieces_have_labels(tmp_path, added, kind):
    folder = WORDPIECE if kind == "wordpiece" else byte_bpe(tmp_path / "bpe")
    task = names_task(tmp_path, added, WORDS, tokenizer=folder)
    (found,) = examples(task, {"inputs": 99, "targets": 99})
    known, text = task.output_features["inputs"].vocabulary, " ".join(WORDS[0]["words"])
    encoding = known.tokenizer.encode(text)
    assert found["inputs"] == encoding.ids
    firsts = [i for i, start in enumerate(known.word_starts()[encoding.ids]) if start][1:-1]
    if kind == "byte_bpe":  # whose first word has no mark
        firsts = [1, *firsts]
    assert len(firsts) == 4 < len(encoding.ids) - 2
    wanted = [int(i in firsts) for i in range(len(encoding.ids))]
    assert found["loss_weights"] == wanted
    assert [found["targets"][i] for i in firsts] == [2, 3, 1, 1]
    assert sum(found["targets"]) == 7
    assert found["targets_pretokenized"] == b"B-PER I-PER O O"


def test_words_beyond_the_length_have_no_place(tmp_path, added):
    (found,) = examples(names_task(tmp_path, added, WORDS), {"inputs": 4, "targets": 4})
    assert len(found["inputs"]) == 4
    assert found["inputs"][0] == 2
    assert found["inputs"][-1] == 3
    assert found["loss_weights"][-1] == 0


@pytest.mark.parametrize(
    ("tags", "said"),
    [([1, 7, 0, 0], "is labelled '7', and the"), ([1, 2, 0], "is labelled '3 labels for 4 words'")],
)
def test_labels_of_words_that_do_not_fit_are_refused(tmp_path, added, tags, said):
    task = names_task(tmp_path, added, [*WORDS, {**WORDS[0], "tags": tags}])
    with pytest.raises(ValueError, match=said):
        task.check_split("train")
    assert len(examples(task)) == 1  # and left out


def test_lists_become_words():
    assert labels.joined(["1 000", "lei", " "]) == "1_000 lei _"
    with pytest.raises(ValueError, match="'B PER' contains a blank"):
        labels.LabelVocabulary(("O", "B PER"), of_words=True)
