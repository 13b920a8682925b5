"""A vocabulary is found late, loaded once, and refused if its sentinels are not where they must."""

import copy
import pickle
import shutil

import numpy as np
import pytest
import seqio

import gin
from fakes.paths import ROOT
from fakes.refuses import refuses
from fakes.small_vocabulary import TEXTS, train
from fakes.tokenizer_files import WORDPIECE
from tasks import corpora, vocabularies
from tasks.corpus.source import CorpusSource
from tasks.tokenizer_vocabulary import TokenizerVocabulary


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return train(tmp_path_factory.mktemp("vocabulary"))


@pytest.mark.parametrize("spelling", ["<extra_id_{}>", "▁<extra_id_{}>"])
def test_sentinels_descend_from_the_last_id(tmp_path, spelling):
    vocabulary = vocabularies.sentencepiece(train(tmp_path, spelling))
    assert vocabularies.sentinels(vocabulary) == tuple(range(399, 299, -1))
    assert vocabulary.vocab_size == 400
    assert vocabularies.sentinels(vocabularies.byt5()) == tuple(range(358, 258, -1))


def test_a_vocabulary_without_sentinels_is_refused(tmp_path):
    bare = train(tmp_path, count=0)
    with refuses("the vocabulary", str(bare)):
        vocabularies.sentinels(vocabularies.sentencepiece(bare))
    with refuses("the vocabulary", "ByteVocabulary"):
        vocabularies.sentinels(seqio.ByteVocabulary())


def test_sentinels_elsewhere_are_refused(tmp_path):
    with refuses("the vocabulary") as refusal:
        vocabularies.sentinels(vocabularies.sentencepiece(train(tmp_path, first=True)))
    assert "<extra_id_0> at id 102 of 400" in refusal.value.why


@pytest.mark.parametrize("kind", [vocabularies.sentencepiece, vocabularies.tokenizer])
def test_a_file_is_asked_for_when_first_needed_and_missed_in_one_sentence(kind):
    asked = []

    def where():
        asked.append(1)
        return "/nowhere/ro"

    vocabulary = kind(where)
    assert not asked
    with refuses("the vocabulary file") as refusal:
        vocabulary.encode("x")
    assert str(refusal.value.value).startswith("/nowhere/ro")


@pytest.mark.parametrize("content", [b"", b"<html>", bytes(99), None])
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path, content):
    path = tmp_path / "a.model"
    path.write_bytes(content) if content is not None else path.mkdir()
    with refuses("the vocabulary file", str(path)):
        vocabularies.sentencepiece(str(path)).encode("un text")


def test_gin_sets_the_path_of_the_file(small):
    vocabulary = vocabularies.sentencepiece(vocabularies.ro_model)
    with gin.unlock_config():
        gin.bind_parameter("tasks.vocabularies.ro_model.path", small)
    try:
        assert vocabulary.sentencepiece_model_file == small
    finally:
        gin.clear_config()
    assert vocabularies.ro_model() == str(ROOT / "vocabularies/ro_64000.model")


def test_equal_files_are_equal_vocabularies_which_survive_copies(small, tmp_path):
    vocabulary = vocabularies.sentencepiece(small)
    assert vocabulary == seqio.SentencePieceVocabulary(small)
    assert seqio.SentencePieceVocabulary(small) == vocabulary
    of_tokenizer = vocabularies.tokenizer(WORDPIECE)
    shutil.copytree(WORDPIECE, tmp_path, dirs_exist_ok=True)
    assert of_tokenizer == TokenizerVocabulary(str(tmp_path)) != vocabulary
    for original in (vocabulary, of_tokenizer):
        for twin in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
            assert twin == original
            assert twin.encode(TEXTS[0]) == original.encode(TEXTS[0])


def test_words_begin_at_blanks():
    mini = vocabularies.sentencepiece(vocabularies.ro_mini_model)
    for vocabulary in (mini, vocabularies.byt5()):
        starts = vocabularies.word_starts(vocabulary)
        ids = vocabulary.encode("Ana are multe mere")
        begins = starts[ids] | (np.arange(len(ids)) == 0)
        words = np.split(ids, np.flatnonzero(begins)[1:])
        assert [vocabulary.decode(word.tolist()).strip() for word in words] == [
            *("Ana", "are", "multe", "mere")
        ]


def test_a_piece_is_one_id_where_the_vocabulary_has_it():
    mini = vocabularies.sentencepiece(vocabularies.ro_mini_model)
    assert vocabularies.ids_of(mini, "▁are") == (181,)
    assert vocabularies.ids_of(mini, "[R]") == tuple(mini.encode("[R]"))
    assert vocabularies.ids_of(mini, "<extra_id_0>") == (2047,)
    with refuses("the vocabulary", vocabularies.name_of(mini)):
        vocabularies.ids_of(mini, "漢")


@pytest.mark.parametrize(
    ("objective", "file"), [("span_corruption", "x.model"), ("masked_lm", "x/tokenizer.json")]
)
def test_a_recipe_sets_the_vocabulary_of_a_task_that_names_a_file(objective, file, tmp_path):
    """As VOCABULARY_FILE does in the recipes of tasks.new_language."""
    name = f"vocabulary_of_{objective}"
    task = corpora.add(name, CorpusSource(str(tmp_path)), "vocabularies/mine", objective)
    try:
        gin.bind_parameter("tasks.vocabularies.task_file.path", f"gs://bucket/{file}")
        vocabulary = task.output_features["targets"].vocabulary
        assert vocabularies.name_of(vocabulary) == f"gs://bucket/{file}"
    finally:
        gin.clear_config()
        seqio.TaskRegistry.remove(name)
