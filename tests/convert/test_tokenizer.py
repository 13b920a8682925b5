"""The written tokenizer gives the trainer's ids, whatever the layout of the vocabulary."""

import json
import pathlib
import re

import pytest
import seqio
from transformers import AutoTokenizer, T5Tokenizer

from convert import tokenizer as hugging_face
from convert.sizes import BertSizes
from fakes.paths import ROOT
from fakes.tokenizer_files import words
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


@pytest.fixture(scope="module")
def outside_model(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("outside") / "outside.model")
    model = read_model(MINI)
    del model.pieces[-100:]
    write_model(model, path)
    return path


@pytest.mark.parametrize("kind", [None, "t5", "mt5", "umt5"])
def test_the_ids_do_not_depend_on_the_models_config(tmp_path, texts, kind):
    """umT5's registered class uses tokenizer.json unchanged, T5's rebuilds it."""
    if kind:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    hugging_face.write_tokenizer(MINI, str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = seqio.SentencePieceVocabulary(MINI, extra_ids=0)
    hugging_face.assert_same_ids(vocabulary, tokenizer, texts)
    assert len(tokenizer) == 2048
    assert tokenizer("<extra_id_0>").input_ids == [2047, 1]
    tokenizer.save_pretrained(tmp_path / "again")
    for folder in (tmp_path, tmp_path / "again"):
        by_class = T5Tokenizer.from_pretrained(folder)
        hugging_face.assert_same_ids(vocabulary, by_class, texts)


@pytest.mark.parametrize("extra_ids", [0, 50, 100, 300])
def test_sentinels_behind_the_model(tmp_path, texts, outside_model, extra_ids):
    hugging_face.write_tokenizer(outside_model, str(tmp_path), extra_ids=extra_ids)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = seqio.SentencePieceVocabulary(outside_model, extra_ids=extra_ids)
    hugging_face.assert_same_ids(vocabulary, tokenizer, texts)
    ours = hugging_face.TrainedVocabulary(outside_model, extra_ids)
    hugging_face.assert_same_ids(ours, tokenizer, texts)
    assert len(tokenizer) == 1948 + extra_ids
    last = 1947 + extra_ids
    assert hugging_face.sentinel_ids(tokenizer) == list(range(last, 1947, -1))


def test_a_wrong_sentinel_behind_the_first_hundred_is_noticed(tmp_path, outside_model):
    hugging_face.write_tokenizer(outside_model, str(tmp_path), extra_ids=300)
    vocabulary = hugging_face.TrainedVocabulary(outside_model, 300)
    for path in tmp_path.glob("*.json"):
        swap = {"<extra_id_250>": "<extra_id_251>", "<extra_id_251>": "<extra_id_250>"}
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub("|".join(swap), lambda m, swap=swap: swap[m[0]], text))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"<extra_id_250> is 1996 .* and 1997 in the trainer's"):
        hugging_face.assert_same_ids(vocabulary, tokenizer, [])


def test_sentinels_that_the_trainer_has_not_are_noticed(tmp_path):
    hugging_face.write_byte_tokenizer(str(tmp_path), extra_ids=50)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    said = "<extra_id_0> is 308 .* which has 50 sentinels, and the trainer's vocabulary has 0"
    with pytest.raises(ValueError, match=said):
        hugging_face.assert_same_ids(seqio.ByteVocabulary(), tokenizer, [])


def test_byte_fallback(tmp_path, texts, bytes_model):
    hugging_face.write_tokenizer(bytes_model, str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = seqio.SentencePieceVocabulary(bytes_model, extra_ids=0)
    hugging_face.assert_same_ids(vocabulary, tokenizer, texts)
    assert tokenizer.decode(tokenizer("漢字 😀").input_ids, skip_special_tokens=True) == "漢字 😀"


@pytest.mark.parametrize("extra_ids", [0, 100, 125])
def test_byte_tokenizer_counts_down_as_seqio(tmp_path, texts, extra_ids):
    hugging_face.write_byte_tokenizer(str(tmp_path), extra_ids=extra_ids)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = seqio.ByteVocabulary(extra_ids=extra_ids)
    plain = [text for text in texts if extra_ids or "<extra_id_" not in text]
    hugging_face.assert_same_ids(vocabulary, tokenizer, plain)
    assert len(tokenizer) == 259 + extra_ids
    assert hugging_face.sentinel_ids(tokenizer) == list(range(258 + extra_ids, 258, -1))
    assert tokenizer("ș").input_ids == [203, 156, 1]


def test_decoding_gives_the_text_back(tmp_path):
    hugging_face.write_tokenizer(MINI, str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "Ana are mere, iar țăranii și-au strâns grânele."
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text
    masked = tokenizer("Ana <extra_id_0> mere.").input_ids
    assert tokenizer.decode(masked, skip_special_tokens=True) == "Ana mere."


def test_files_are_the_same_every_time(tmp_path):
    for folder in ("a", "b"):
        hugging_face.write_tokenizer(MINI, str(tmp_path / folder))
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


@pytest.mark.parametrize("extra_ids", [0, 50, 100, 300])
def test_the_config_declares_the_sentinels_to_the_slow_tokenizer_of_transformers_4(
    tmp_path, outside_model, extra_ids
):
    """It counts sentinels down from len(model) - 1 + extra_ids."""
    model = outside_model if extra_ids else MINI
    hugging_face.write_tokenizer(model, str(tmp_path), extra_ids=extra_ids)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    pieces = len(read_model(str(tmp_path / "spiece.model")).pieces)
    assert config["extra_ids"] == extra_ids
    assert pieces + extra_ids == (1948 + extra_ids if extra_ids else 2048)
    names = [f"<extra_id_{n}>" for n in range(extra_ids or 100)]
    assert config["additional_special_tokens"] == names
    assert config["legacy"] is False


def test_another_vocabulary_is_noticed(tmp_path, bytes_model, outside_model):
    hugging_face.write_tokenizer(MINI, str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    said = {bytes_model: "and 1023 in the trainer's", outside_model: "trainer's vocabulary has 0"}
    for path, reason in said.items():
        vocabulary = seqio.SentencePieceVocabulary(path, extra_ids=0)
        with pytest.raises(ValueError, match=f"<extra_id_0> is 2047 .* {reason}"):
            hugging_face.assert_same_ids(vocabulary, tokenizer, [])


def test_one_changed_score_is_noticed(tmp_path):
    model = read_model(MINI)
    word = next(i for i, piece in enumerate(model.pieces) if piece.piece == "▁face")
    model.pieces[word].score = -100.0
    changed = str(tmp_path / "changed.model")
    write_model(model, changed)
    hugging_face.write_tokenizer(changed, str(tmp_path / "hf"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    vocabulary = seqio.SentencePieceVocabulary(MINI)
    hugging_face.assert_same_ids(vocabulary, tokenizer, ["Ana vine."])
    with pytest.raises(ValueError, match="the tokenizers differ at id 1 of 'Ce face Ana'"):
        hugging_face.assert_same_ids(vocabulary, tokenizer, ["Ce face Ana"])


def test_a_tie_is_no_difference():
    names = {1: "▁", 2: "..", 3: "."}
    look_up = lambda ids: [names[i] for i in ids]
    assert hugging_face.is_tie([1, 2, 3], [1, 3, 2], look_up)
    assert not hugging_face.is_tie([1, 2, 3], [2, 1, 3], look_up)
    assert not hugging_face.is_tie([1, 2], [1, 3, 3], look_up)


def test_a_model_with_other_special_ids_is_refused(tmp_path):
    model = read_model(MINI)
    model.trainer_spec.pad_id = 3
    write_model(model, str(tmp_path / "odd.model"))
    with pytest.raises(ValueError, match=r"pad, eos, unk \(3, 1, 2\)"):
        hugging_face.write_tokenizer(str(tmp_path / "odd.model"), str(tmp_path / "hf"))


def test_special_ids_of_an_encoder_are_those_that_its_tokenizer_names(tmp_path):
    found = hugging_face.TokenizerFolder(words(tmp_path))
    ids = {"pad": 1, "cls": 0, "sep": 2, "bos": 0, "eos": 2}
    sizes = BertSizes(60, position_offset=2)
    assert found.config_ids(sizes) == {f"{role}_token_id": i for role, i in ids.items()}
    assert found.token("mask") == "<mask>"
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"bos_token": {"content": "ana", "special": False}}
    path.write_text(json.dumps(config))
    assert found.config_ids(sizes)["bos_token_id"] == 5
    with pytest.raises(ValueError, match="60 ids and the embedding 59 rows"):
        found.config_ids(BertSizes(59))


def test_only_files_of_a_tokenizer_are_copied(tmp_path):
    words(tmp_path / "from")
    (tmp_path / "from/notes.txt").write_text("private")
    hugging_face.TokenizerFolder(str(tmp_path / "from")).write(tmp_path / "to")
    names = {path.name for path in (tmp_path / "to").iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json"}
