"""Training gives exactly the pieces asked for, sentinels last, the same file every time."""

import json

import pytest
import sentencepiece
import tensorflow as tf

from common import tables
from common.tables import OK
from fakes.paths import ROOT
from fakes.refusals import refused
from tasks import vocabularies
from tasks.text.tokenize import batch_encoder
from vocabulary import corpus, train
from vocabulary import sentencepiece_model as spm
from vocabulary.check import check_vocabulary, same_ids
from vocabulary.sentencepiece_model import sentinel_ids

MINI = str(ROOT / "data" / "ro_mini" / "train-*.jsonl")


@pytest.fixture(scope="module")
def lines():
    return [line for text in corpus.read_documents(MINI) for line in corpus.lines_of(text)]


@pytest.fixture(scope="module")
def model(lines):
    return train.train_vocabulary(lines, 512)


def processor(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def test_size_counts_everything(model):
    assert len(model.pieces) == 512
    assert model.trainer_spec.vocab_size == 512


def test_sentinels_are_last_and_descend(model):
    assert sentinel_ids(model) == {n: 511 - n for n in range(100)}


def test_sentinel_in_text_is_one_id_between_words(model):
    encode = processor(model).encode
    words = encode("Ana are mere")
    assert encode("<extra_id_0>") == [511]
    assert encode("Ana are mere <extra_id_99>") == [*words, 412]
    assert encode("<extra_id_7> Ana are mere <extra_id_8>") == [504, *words, 503]


def test_special_ids(model):
    loaded = processor(model)
    ids = (loaded.pad_id(), loaded.eos_id(), loaded.unk_id(), loaded.bos_id())
    assert ids == (0, 1, 2, -1)


def test_same_text_same_file(lines, model):
    again = train.train_vocabulary(lines, 512)
    assert again.SerializeToString(deterministic=True) == model.SerializeToString(
        deterministic=True
    )


def test_required_characters_are_never_unknown(model):
    loaded = processor(model)
    assert 2 not in loaded.encode(train.REQUIRED_CHARACTERS)


def test_byte_fallback_leaves_nothing_unknown(lines):
    loaded = processor(train.train_vocabulary(lines, 768, byte_fallback=True))
    ids = loaded.encode("漢字 😀")
    assert 2 not in ids
    assert loaded.decode(ids) == "漢字 😀"


@pytest.mark.parametrize("size", [0, 128, 1000, 64001])
def test_size_must_be_a_multiple_of_128(size):
    with pytest.raises(ValueError, match=rf"--size {size} is not a multiple of 128.*set --size"):
        train.train_vocabulary(iter(["never read"]), size)


def test_size_too_large_names_the_largest(lines):
    with pytest.raises(ValueError, match="the largest possible is --size") as error:
        train.train_vocabulary(lines, 128_000)
    largest = int(str(error.value).split("--size ")[2].split(",")[0])
    assert len(train.train_vocabulary(lines, largest).pieces) == largest


def test_size_too_small_names_the_least(lines):
    chinese = "".join(map(chr, range(0x4E00, 0x4E3C)))
    options = {"required_characters": train.REQUIRED_CHARACTERS + chinese}
    with pytest.raises(ValueError, match="set --size 384 or more"):
        train.train_vocabulary(lines, 256, **options)
    assert len(train.train_vocabulary(lines, 384, **options).pieces) == 384


def test_empty_corpus():
    with pytest.raises(ValueError, match="the corpus holds no text"):
        train.train_vocabulary([], 512)


def test_command_writes_and_checks(tmp_path, capsys):
    out = tmp_path / "new" / "ro.model"
    train.main(["--corpus", MINI, "--size", "512", "--out", str(out)])
    printed = capsys.readouterr()
    assert "512 pieces" in printed.out
    assert "read 291 documents" in printed.err
    findings = check_vocabulary(str(out), 512)
    assert tables.passed(findings), tables.table(findings)
    listing = out.with_suffix(".vocab").read_text(encoding="utf-8").splitlines()
    assert len(listing) == 512
    assert listing[0] == "<pad>\t0"
    assert listing[-1] == "▁<extra_id_0>\t0"


def test_the_command_overwrites_nothing(tmp_path, capsys):
    out = tmp_path / "ro.model"
    out.write_bytes(b"precious")
    with pytest.raises(SystemExit):
        train.main(["--corpus", MINI, "--size", "512", "--out", str(out)])
    assert f"{out} exists, and models trained with it" in capsys.readouterr().err
    assert out.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"--corpus": "nowhere/*.jsonl"}, "since there is no folder nowhere$"),
        ({"--corpus": "/nowhere"}, r"no file matches '/nowhere/train\*'"),
        ({"--column": "txt"}, r"no column 'txt'.* text"),
        ({"--size": "513"}, "not a multiple of 128"),
        ({"--out": "ro.bin"}, "must end in .model"),
        ({"--kind": "wordpiece"}, "a.model must be a folder, not end in .model, for --kind wordp"),
        ({"--special_tokens": "bert"}, "--special_tokens is not for --kind sentencepiece"),
    ],
)
def test_mistakes_are_one_sentence(changes, sentence, tmp_path, capsys):
    options = {"--corpus": MINI, "--size": "512", "--out": str(tmp_path / "a.model")} | changes
    with refused(capsys, sentence):
        train.main([word for pair in options.items() for word in pair])
    assert not list(tmp_path.iterdir())


def test_letters_of_a_language_become_pieces_in_both_cases(tmp_path):
    text = ["Příliš žluťoučký kůň úpěl ďábelské ódy"] * 20 + ["Ω"] * 19 + ["straße"] * 20
    assert set("ěščřžýáíéúůťďňóĚŠČŘŽÝÁÍÉÚŮŤĎŇÓß") >= set(train.letters_of(text, 2048))
    assert set("ěščřžĚŠČŘŽß") <= set(train.letters_of(text, 2048))
    assert len(train.letters_of([chr(0x4E00 + i) * 30 for i in range(500)], 1024)) == 64


def test_a_zero_width_joiner_of_the_corpus_is_a_piece_of_its_own(tmp_path, capsys):
    texts = [text.replace("te", "t\u200ce") for text in corpus.read_documents(MINI)]
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in texts))
    out = tmp_path / "joined.model"
    train.main(["--corpus", str(tmp_path / "train.jsonl"), "--size", "512", "--out", str(out)])
    assert "U+200C can be written" in capsys.readouterr().out
    vocabulary = vocabularies.sentencepiece(str(out))
    ids = vocabulary.encode("ceart\u200ce\nmere")
    assert vocabulary.decode(ids) == "ceart\u200ce mere"
    (streamed,) = batch_encoder(vocabulary)(tf.constant(["ceart\u200ce\nmere"])).to_list()
    assert streamed == ids
    texts += ["line\nbreak", "a\u200cb ﬁ\u200cm² \u200c x\u200b\u200cy"]
    same = same_ids(str(out), texts)
    assert same.verdict == OK, same.figure
    assert not any(ord(c) >= 0xF0000 for p in spm.read_model(str(out)).pieces for c in p.piece)


def test_a_rare_letter_of_the_corpus_is_no_unknown_piece(tmp_path):
    rows = [json.dumps({"text": f"ana are mere {i}"}) for i in range(8_000)]
    rows[::380] = [json.dumps({"text": "ů"})] * len(rows[::380])
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    out = tmp_path / "cs.model"
    train.main(["--corpus", str(tmp_path / "train.jsonl"), "--size", "256", "--out", str(out)])
    pieces = {piece.piece for piece in spm.read_model(str(out)).pieces}
    assert {"ů", "Ů"} <= pieces


def test_the_command_makes_an_encoders_vocabulary_and_overwrites_nothing(tmp_path, capsys):
    out = tmp_path / "bert"
    options = ["--kind", "byte_bpe", "--special_tokens", "modernbert", "--out", str(out)]
    train.main(["--corpus", MINI, "--size", "512", *options])
    assert "512 of vocab_size 512" in capsys.readouterr().out
    assert json.loads((out / "tokenizer_config.json").read_text())["mask_token"] == "[MASK]"
    for flags, said in (([], "exists"), (["--byte_fallback"], "is not for --kind byte_bpe")):
        with pytest.raises(SystemExit):
            train.main(["--corpus", MINI, "--size", "512", *options, *flags])
        assert said in capsys.readouterr().err
