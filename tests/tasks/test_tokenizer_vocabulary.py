"""A tokenizer.json gives the ids of transformers, knows its special tokens, and loads late."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from fakes import tokenizer_files
from fakes.refuses import refuses
from fakes.small_vocabulary import TEXTS
from fakes.tokenizer_files import WORDPIECE
from tasks import vocabularies
from tasks.tokenizer_vocabulary import TokenizerVocabulary

KINDS = ("wordpiece", "byte_bpe", "blanks", "unigram", "cased")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("tokenizers")
    byte_bpe = tokenizer_files.byte_bpe(root / "byte_bpe")
    blanks = tokenizer_files.blanks_bpe(root / "blanks")
    found = {"wordpiece": WORDPIECE, "byte_bpe": byte_bpe, "blanks": blanks}
    found["unigram"] = tokenizer_files.unigram(root / "unigram")
    return found | {"cased": tokenizer_files.cased(root / "cased")}


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram", "cased"])
def test_ids_are_those_of_transformers(folders, kind):
    from transformers import AutoTokenizer

    vocabulary = vocabularies.tokenizer(folders[kind])
    reference = AutoTokenizer.from_pretrained(folders[kind])
    for text in TEXTS:
        wanted = reference(text, add_special_tokens=False)["input_ids"]
        assert vocabulary.encode(text) == wanted
        assert vocabulary.encode_tf(tf.constant(text)).numpy().tolist() == wanted
    assert reference.mask_token_id == vocabulary.mask_id
    ids = [vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id]
    wanted = ("pad", "unk", "cls", "sep")
    assert ids == [getattr(reference, f"{role}_token_id") for role in wanted]
    assert vocabulary.vocab_size == len(reference)
    last = vocabulary.vocab_size - 1
    specials = {"unigram": (0, 1, 2, 3, last), "cased": (0, 1, 2, 3, 4, 5)}
    assert vocabulary.special_ids == specials.get(kind, (0, 1, 2, 3, 4))


def test_special_tokens_are_known_by_their_spelling_without_a_configuration(folders):
    vocabulary = TokenizerVocabulary(folders["blanks"] + "/tokenizer.json")
    found = {role: vocabulary.pieces[i] for role, i in vocabulary.roles.items()}
    assert found == {
        "pad": "<pad>",
        "unk": "<unk>",
        "cls": "<bos>",
        "sep": "<eos>",
        "mask": "<mask>",
        "bos": "<bos>",
        "eos": "<eos>",
    }


def test_a_configuration_names_special_tokens(tmp_path):
    shutil.copytree(WORDPIECE, tmp_path, dirs_exist_ok=True)
    named = {"mask_token": {"content": "Ș"}, "pad_token": "[UNK]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    vocabulary = TokenizerVocabulary(str(tmp_path))
    assert vocabulary.pieces[vocabulary.mask_id] == "Ș"
    assert vocabulary.pad_id == 1
    assert vocabulary.mask_id in vocabulary.special_ids


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_that_begin_a_word_are_known(folders, kind):
    vocabulary = vocabularies.tokenizer(folders[kind])
    starts = vocabularies.word_starts(vocabulary)
    assert starts.dtype == bool
    assert starts.shape == (vocabulary.vocab_size,)
    assert starts[list(vocabulary.special_ids)].all()
    for text in TEXTS[:5]:
        text = " ".join("".join(c if c.isalpha() else " " for c in text).split())
        ids = vocabulary.encode(f" {text}" if kind != "wordpiece" else text)
        assert starts[ids].sum() == len(text.split())


def test_text_of_a_corpus_that_spells_a_special_token_is_text(folders):
    for folder in folders.values():
        vocabulary = TokenizerVocabulary(folder)
        mask = vocabulary.pieces[vocabulary.mask_id]
        ids, lengths = vocabulary.encode_texts([f"Ana {mask} mere", "Ana"])
        assert not np.isin(ids[ids != vocabulary.unk_id], vocabulary.special_ids).any()
        assert lengths.sum() == len(ids)
        assert vocabulary.mask_id in vocabulary.encode(f"Ana {mask} mere")


def test_ids_are_read_back_as_text(folders):
    vocabulary = vocabularies.tokenizer(folders["byte_bpe"])
    rows = [vocabulary.encode(text) for text in TEXTS[:3]]
    assert [vocabulary.decode(row) for row in rows] == TEXTS[:3]
    # A separator between two texts ends neither of them.
    pair = [*rows[0], vocabulary.sep_id, *rows[1]]
    assert vocabulary.decode(pair) == f"{TEXTS[0]}</s>{TEXTS[1]}"
    assert vocabulary.decode_tf(tf.constant(pair)).numpy().decode() == vocabulary.decode(pair)


def test_lengths_that_a_file_sets_are_left_out(tmp_path):
    def shorten(content):
        content["truncation"] = {
            "max_length": 8,
            "strategy": "LongestFirst",
            "stride": 0,
            "direction": "Right",
        }
        content["padding"] = {
            "strategy": {"Fixed": 8},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }

    vocabulary = TokenizerVocabulary(tokenizer_files.edit(WORDPIECE, tmp_path, shorten))
    wanted = vocabularies.tokenizer(WORDPIECE)
    for text in ("Ana", TEXTS[0]):
        assert vocabulary.encode(text) == wanted.encode(text)
        assert vocabulary.encode_texts([text])[0].tolist() == wanted.encode(text)


def test_a_file_of_something_else_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": 1}')
    with refuses("the vocabulary file", str(tmp_path / "tokenizer.json")):
        TokenizerVocabulary(str(tmp_path)).encode("x")
