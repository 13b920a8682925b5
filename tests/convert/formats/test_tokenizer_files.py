"""The written tokenizer gives the trainer's ids, whatever the layout of the vocabulary."""

import json
import pathlib

import pytest
from transformers import AutoTokenizer, T5Tokenizer

from convert.formats import tokenizer_files
from convert.formats.sentencepiece_model import read_model, write_model
from convert.proof.odd_texts import odd_texts
from convert.proof.same_ids import compare, encoder_of, sentinel_ids
from convert.tokenizer import TrainedVocabulary
from fakes.paths import ROOT
from fakes.refuses import refuses
from vocabulary import corpus, train

DATA = ROOT / "data" / "ro_mini"
MINI = str(DATA / "ro_mini.model")


@pytest.fixture(scope="module")
def texts():
    lines = (DATA / "validation.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines] + list(odd_texts())


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
    vocabulary = TrainedVocabulary(MINI, 0)
    compare(vocabulary, tmp_path, texts)
    assert len(tokenizer) == 2048
    assert tokenizer("<extra_id_0>").input_ids == [2047, 1]
    text = "Ana are mere, iar țăranii și-au strâns grânele."
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text
    tokenizer.save_pretrained(tmp_path / "again")
    compare(vocabulary, tmp_path / "again", texts)
    encode = encoder_of(vocabulary)
    for folder in (tmp_path, tmp_path / "again"):
        by_class = T5Tokenizer.from_pretrained(folder)
        for text in ("Ana <extra_id_0> mere, iar <extra_id_99> ș.a.", "două\tspații  și"):
            assert by_class(text).input_ids == [*encode(text), 1]


@pytest.mark.parametrize("extra_ids", [0, 100, 300])
def test_sentinels_behind_the_model(tmp_path, texts, outside_model, extra_ids):
    tokenizer_files.write_tokenizer(outside_model, str(tmp_path), extra_ids=extra_ids)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    compare(TrainedVocabulary(outside_model, extra_ids), tmp_path, texts)
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
    compare(TrainedVocabulary(bytes_model, 0), tmp_path, texts)
    assert tokenizer.decode(tokenizer("漢字 😀").input_ids, skip_special_tokens=True) == "漢字 😀"


@pytest.mark.parametrize("extra_ids", [0, 125])
def test_byte_tokenizer_counts_down_as_seqio(tmp_path, texts, extra_ids):
    tokenizer_files.write_byte_tokenizer(str(tmp_path), extra_ids=extra_ids)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    compare(TrainedVocabulary("bytes", extra_ids), tmp_path, texts)
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


@pytest.mark.parametrize(
    ("spec", "setting", "value", "named"),
    [
        ("trainer_spec", "pad_id", 3, "pad_id 3"),
        ("trainer_spec", "model_type", 2, "bpe"),
        ("trainer_spec", "treat_whitespace_as_suffix", True, "treat_whitespace_as_suffix"),
        ("normalizer_spec", "name", "nmt_nfkc_cf", "nmt_nfkc_cf"),
        ("normalizer_spec", "escape_whitespaces", False, "escape_whitespaces"),
    ],
)
def test_a_model_that_no_published_tokenizer_equals_is_refused_by_name(
    tmp_path, spec, setting, value, named
):
    model = read_model(MINI)
    setattr(getattr(model, spec), setting, value)
    write_model(model, str(tmp_path / "odd.model"))
    with refuses(tmp_path / "odd.model") as refusal:
        tokenizer_files.write_tokenizer(str(tmp_path / "odd.model"), str(tmp_path / "hf"))
    assert named in refusal.value.why
