"""Vocabularies of all kinds give ids of parts, and their sentinels."""

import copy
import json

import pytest

from convert.formats.sentencepiece_model import read_model, write_model
from convert.formats.tokenizer_files import write_byte_tokenizer, write_tokenizer
from convert.tokenizer import TrainedVocabulary
from evaluation import text_encoder
from evaluation.guesser import prefix_examples, span_examples
from evaluation.hidden_text import HiddenText
from fakes.paths import ROOT
from fakes.refuses import refuses

MODEL = str(ROOT / "data" / "ro_mini" / "ro_mini.model")
PARTS = ["Ana are", "mere", "și pere ."]


@pytest.mark.parametrize(
    "vocabulary", [TrainedVocabulary(MODEL, 0), TrainedVocabulary("bytes", 100)]
)
def test_parts_are_the_text_and_pieces_that_begin_a_word_are_known(vocabulary):
    encoder = text_encoder.vocabulary_encoder(vocabulary, "here")
    parts = encoder.encode(PARTS)
    assert [i for part in parts for i in part] == encoder.ids_of(" ".join(PARTS))
    first, second = encoder.encode(["școală", "mare"])
    assert second[0] in encoder.word_starts
    assert not {*first[1:], *second[1:]} & encoder.word_starts


def test_sentinels_are_found_in_the_model():
    encoder = text_encoder.vocabulary_encoder(TrainedVocabulary(MODEL, 0), "here")
    assert encoder.sentinels == tuple(range(2047, 1947, -1))
    assert (encoder.unk_id, encoder.marks_spaces) == (2, False)


@pytest.mark.parametrize(("extra_ids", "first"), [(100, 358), (0, 258)])
def test_sentinels_of_bytes(tmp_path, extra_ids, first):
    write_byte_tokenizer(str(tmp_path), extra_ids=extra_ids)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(_empty_safetensors())
    encoder = text_encoder.folder_encoder(tmp_path)
    assert encoder.sentinels[:2] == (first, first - 1)
    assert encoder.marks_spaces
    assert encoder.encode(["a", "b"]) == [[100], [35, 101]]


def _empty_safetensors() -> bytes:
    return (2).to_bytes(8, "little") + b"{}"


def folder_with_tokenizer(path, model=MODEL, extra_ids=0):
    write_tokenizer(model, str(path), extra_ids=extra_ids)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(_empty_safetensors())
    return path


def test_a_folder_gives_the_same_with_and_without_sentencepiece(tmp_path):
    folder = folder_with_tokenizer(tmp_path)
    pieces = text_encoder.folder_encoder(folder)
    (folder / "spiece.model").unlink()
    fast = text_encoder.folder_encoder(folder)
    assert fast.encode(PARTS) == pieces.encode(PARTS)
    assert (fast.sentinels, fast.unk_id) == (pieces.sentinels, pieces.unk_id)
    assert fast.word_starts == pieces.word_starts


@pytest.mark.parametrize(("extra_ids", "byte_fallback"), [(50, True), (300, False)])
def test_a_folder_says_how_many_sentinels_are_behind_the_pieces(tmp_path, extra_ids, byte_fallback):
    model = read_model(MODEL)
    del model.pieces[-100:]
    model.trainer_spec.byte_fallback = byte_fallback
    if byte_fallback:
        for piece, byte in zip(model.pieces[-256:], range(256), strict=True):
            piece.piece, piece.type = f"<0x{byte:02X}>", piece.BYTE
    write_model(model, str(tmp_path / "outside.model"))
    folder = folder_with_tokenizer(tmp_path, str(tmp_path / "outside.model"), extra_ids)
    last = len(model.pieces) + extra_ids - 1
    found = text_encoder.folder_encoder(folder)
    assert found.sentinels == tuple(range(last, last - extra_ids, -1))
    (folder / "spiece.model").unlink()
    assert text_encoder.folder_encoder(folder).sentinels == found.sentinels


def test_texts_end_with_the_end_of_the_vocabulary(tmp_path):
    """Vocabularies made elsewhere have it at any id; the piece 1 is then another one."""
    model = read_model(MODEL)
    end, unknown = map(copy.deepcopy, model.pieces[1:3])
    model.pieces[1].CopyFrom(unknown)
    model.pieces[2].CopyFrom(end)
    model.trainer_spec.eos_id, model.trainer_spec.unk_id = 2, 1
    write_model(model, str(tmp_path / "other.model"))
    folder = folder_with_tokenizer(tmp_path, str(tmp_path / "other.model"))
    vocabulary = TrainedVocabulary(str(tmp_path / "other.model"), 0)
    encoders = [text_encoder.vocabulary_encoder(vocabulary, "here")]
    encoders.append(text_encoder.folder_encoder(folder))
    (folder / "spiece.model").unlink()
    encoders.append(text_encoder.folder_encoder(folder))
    text = HiddenText(("Ana", "are", "mere"), ((1, 2),))
    for encoder in encoders:
        (spans,), (prefix,) = span_examples(text, encoder), prefix_examples(text, encoder)
        assert (spans.inputs[-1], spans.ends[0], prefix.inputs) == (2, 2, [2])


def test_a_folder_without_a_tokenizer_or_without_sentinels_is_refused(tmp_path):
    folder = folder_with_tokenizer(tmp_path)
    (folder / "spiece.model").unlink()
    described = json.loads((folder / "tokenizer.json").read_text())
    described["added_tokens"] = []
    for piece in described["model"]["vocab"]:
        piece[0] = piece[0].replace("extra_id", "other")
    (folder / "tokenizer.json").write_text(json.dumps(described))
    with refuses(folder) as refusal:
        text_encoder.folder_encoder(folder)
    assert "<extra_id_0>" in refusal.value.why
    (folder / "tokenizer.json").unlink()
    with refuses(folder) as refusal:
        text_encoder.folder_encoder(folder)
    assert "tokenizer" in refusal.value.why
