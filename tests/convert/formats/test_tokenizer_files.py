"""The written tokenizer gives the trainer's ids, whatever the layout of the vocabulary."""

import json
import pathlib

import pytest
import seqio
from transformers import AutoTokenizer, T5Tokenizer

from convert.formats import tokenizer_files
from convert.proof.same_ids import assert_same_ids, sentinel_ids
from convert.tokenizer import TrainedVocabulary
from fakes.paths import ROOT
from vocabulary import corpus, train
from vocabulary.sentencepiece_model import read_model, write_model

DATA = ROOT / "data" / "ro_mini"
MINI = str(DATA / "ro_mini.model")
ODD = (
    "",
    " ",
    "  două  spații,\tun tab și\no linie nouă  ",
    "Ștefan, ŞTEFAN, s\u0327i e\u0301",
    "1.234,56 € … ½ m² ﬁ ™",
    "a\u00a0b\u200bc\u00add",
    "漢字 и кириллица 한국어 😀 🇷🇴",
    "a▁b <not_a_token> [x] {y}",
)


def with_sentinels(text):
    words = text.split()
    for place in range(0, len(words), 4):
        words[place] = f"<extra_id_{place // 4 % 100}> {words[place]}"
    return " ".join(words) + " <extra_id_99>"


@pytest.fixture(scope="module")
def texts():
    lines = (DATA / "validation.jsonl").read_text(encoding="utf-8").splitlines()
    plain = [json.loads(line)["text"] for line in lines] + list(ODD)
    return plain + [with_sentinels(text) for text in plain]


@pytest.fixture(scope="module")
def bytes_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("bytes") / "bytes.model"
    documents = corpus.read_documents(str(DATA / "train-*.jsonl"))
    lines = (line for document in documents for line in corpus.lines_of(document))
    write_model(train.train_vocabulary(lines, 1024, byte_fallback=True), str(path))
    return str(path)


@pytest.mark.parametrize("kind", [None, "t5", "umt5"])
def test_the_ids_do_not_depend_on_the_models_config(tmp_path, texts, kind):
    """umT5's registered class uses tokenizer.json unchanged, T5's rebuilds it."""
    if kind:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    tokenizer_files.write_tokenizer(MINI, str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = seqio.SentencePieceVocabulary(MINI, extra_ids=0)
    assert_same_ids(vocabulary, tokenizer, texts)
    assert len(tokenizer) == 2048
    assert tokenizer("<extra_id_0>").input_ids == [2047, 1]
    text = "Ana are mere, iar țăranii și-au strâns grânele."
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text
    tokenizer.save_pretrained(tmp_path / "again")
    for folder in (tmp_path, tmp_path / "again"):
        by_class = T5Tokenizer.from_pretrained(folder)
        assert_same_ids(vocabulary, by_class, texts)


@pytest.mark.parametrize("extra_ids", [0, 100, 300])
def test_sentinels_behind_the_model(tmp_path, texts, outside_model, extra_ids):
    tokenizer_files.write_tokenizer(outside_model, str(tmp_path), extra_ids=extra_ids)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = seqio.SentencePieceVocabulary(outside_model, extra_ids=extra_ids)
    assert_same_ids(vocabulary, tokenizer, texts)
    ours = TrainedVocabulary(outside_model, extra_ids)
    assert_same_ids(ours, tokenizer, texts)
    assert len(tokenizer) == 1948 + extra_ids
    last = 1947 + extra_ids
    assert sentinel_ids(tokenizer) == list(range(last, 1947, -1))
    # transformers 4's slow tokenizer counts sentinels down from len(model) - 1 + extra_ids.
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    names = [f"<extra_id_{n}>" for n in range(extra_ids)]
    assert (config["extra_ids"], config["additional_special_tokens"]) == (extra_ids, names)
    assert len(read_model(str(tmp_path / "spiece.model")).pieces) == 1948


def test_byte_fallback(tmp_path, texts, bytes_model):
    tokenizer_files.write_tokenizer(bytes_model, str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = seqio.SentencePieceVocabulary(bytes_model, extra_ids=0)
    assert_same_ids(vocabulary, tokenizer, texts)
    assert tokenizer.decode(tokenizer("漢字 😀").input_ids, skip_special_tokens=True) == "漢字 😀"


@pytest.mark.parametrize("extra_ids", [0, 125])
def test_byte_tokenizer_counts_down_as_seqio(tmp_path, texts, extra_ids):
    tokenizer_files.write_byte_tokenizer(str(tmp_path), extra_ids=extra_ids)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = seqio.ByteVocabulary(extra_ids=extra_ids)
    plain = [text for text in texts if extra_ids or "<extra_id_" not in text]
    assert_same_ids(vocabulary, tokenizer, plain)
    assert len(tokenizer) == 259 + extra_ids
    assert sentinel_ids(tokenizer) == list(range(258 + extra_ids, 258, -1))
    assert tokenizer("ș").input_ids == [203, 156, 1]


def test_files_are_the_same_every_time(tmp_path):
    for folder in ("a", "b"):
        tokenizer_files.write_tokenizer(MINI, str(tmp_path / folder))
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [
        "special_tokens_map.json",
        "spiece.model",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "spiece.model").read_bytes() == pathlib.Path(MINI).read_bytes()


def test_a_model_with_other_special_ids_is_refused(tmp_path):
    model = read_model(MINI)
    model.trainer_spec.pad_id = 3
    write_model(model, str(tmp_path / "odd.model"))
    with pytest.raises(ValueError, match=r"pad, eos, unk \(3, 1, 2\)"):
        tokenizer_files.write_tokenizer(str(tmp_path / "odd.model"), str(tmp_path / "hf"))
