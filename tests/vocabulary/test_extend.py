"""More pieces: they are used, they start from their old pieces, and nothing else moves."""

import re
import unicodedata

import pytest

from common import tables
from convert.formats.sentencepiece_model import processor, read_model
from fakes import tokenizer_files
from fakes.paths import ROOT
from fakes.refuses import refuses
from vocabulary import checkpoint, extend
from vocabulary.check import check_vocabulary, same_ids
from vocabulary.pieces import NewPiece, SentencePieces

DATA = ROOT / "data" / "ro_mini"
MINI = str(DATA / "ro_mini.model")
WORDS = ["▁constituțională", "constituțional"]


def test_new_pieces_are_used_the_longer_one_first(pieces):
    large = extend.extend(pieces, WORDS).new
    encode = large.encode
    first = pieces.size - 100
    assert encode("constituțională") == [first]
    assert encode("constituțional") == [first + 1]
    score = {piece.piece: piece.score for piece in large.model.pieces}
    assert score["▁constituțională"] > score["▁constituțional"] + score["ă"] + 0.1


def test_bytes_a_piece_are_those_of_all_of_a_sorted_corpus(pieces):
    texts = ["Ana are mere", "qxwqxwqxw"]
    sorted_lines = [text for text in texts for _ in range(20_000)]
    expected = checkpoint.bytes_a_piece(pieces, texts)
    assert checkpoint.bytes_a_piece(pieces, sorted_lines) == pytest.approx(expected, rel=0.02)


def test_two_ways_to_spell_a_word_with_new_pieces_do_not_tie(pieces):
    q, x, w = map(pieces.names.index, "qxw")
    added = [NewPiece("qx", (q, x)), NewPiece("xw", (x, w)), NewPiece("wq", (w, q))]
    large = pieces.change(added=added).new
    score = dict(zip(large.names, large.scores, strict=True))
    assert score["qx"] + score["w"] > score["q"] + score["xw"] + 0.05
    assert score["xw"] + score["q"] > score["x"] + score["wq"] + 0.05


def test_pieces_are_normalized_as_texts_are(pieces):
    words = [unicodedata.normalize("NFD", "constituțională"), "ﬁrmăm", "m²", "Ⅻ"]
    large = extend.extend(pieces, [f"▁{word}" for word in words]).new
    first = pieces.size - 100
    assert large.encode(words) == [[first + i] for i in range(4)]
    assert large.encode("constituțională firmăm m2 XII") == [*range(first, first + 4)]


def test_other_texts_are_tokenized_as_before_and_sentinels_stay_last(pieces, lines):
    change = extend.extend(pieces, WORDS)
    large, sources = change.new, change.sources
    assert [old for (old,) in sources[-100:]] == list(range(1948, 2048))
    for line in lines:
        ids = [sources[i][0] for i in large.encode(line + " <extra_id_3>")]
        assert ids == pieces.encode(line + " <extra_id_3>")


def test_the_command_writes_what_the_check_and_hugging_face_agree_on(lines, tmp_path, capsys):
    path = str(tmp_path / "large.model")
    (tmp_path / "words.txt").write_text("constituțională\n\n▁constituțional\n", encoding="utf-8")
    extend.main([MINI, "--pieces", str(tmp_path / "words.txt"), "--out", path])
    assert "0 go, 2 come, 2,048 stay" in capsys.readouterr().out
    checks = [*check_vocabulary(path, 2176), same_ids(path, lines)]
    assert tables.passed(checks), tables.table(checks)


def test_a_language_that_the_vocabulary_holds_well_gets_no_piece(tmp_path, capsys):
    """The others of the road's commands go on: what is written has the same pieces."""
    path = tmp_path / "same.model"
    flags = ["--corpus", str(DATA / "validation.jsonl"), "--size", "200", "--out", str(path)]
    assert extend.main([MINI, *flags, "--dry_run"]) == 0
    assert not path.exists()
    assert extend.main([MINI, *flags]) == 0
    assert capsys.readouterr().out.count("no piece is added") == 2
    assert path.read_bytes() == (DATA / "ro_mini.model").read_bytes()


def flags_of(folder, size, out):
    """Flags that take each line of a folder's text.txt for a document."""
    corpus = ["--corpus", str(folder / "text.txt"), "--documents", "lines"]
    return [*corpus, "--size", str(size), "--out", str(out)]


# Every word is one unknown piece to the first two, and more of them would hold no more bytes.
@pytest.mark.parametrize("made", [None, tokenizer_files.unigram, tokenizer_files.byte_bpe])
@pytest.mark.parametrize("size", [20, 200])
def test_letters_that_the_vocabulary_lacks_are_added(tmp_path, capsys, made, size):
    model = made(tmp_path / "made") if made else MINI
    letters = "აბგდევზთიკლმნოპჟ"
    words = [first + second + third for first in letters for second in letters for third in "აეი"]
    (tmp_path / "text.txt").write_text("\n".join(words * 2))
    out = str(tmp_path / "out") + (".model" if not made else "")
    flags = flags_of(tmp_path, size, out)
    assert extend.main([model, *flags, "--dry_run"]) == 0
    said = capsys.readouterr().out
    assert " 0 go, " in said
    assert "no piece is added" not in said
    figures = r"bytes a piece.* ([\d.]+) before, ([\d.]+) after"
    before, after = map(float, re.search(figures, said).groups())
    assert after > 1.5 * before


def texts_with(character):
    """Lines of words that the vocabulary holds, each with a character at its end."""
    words = ["mere", "pere", "are", "nuci"]
    return [f"{words[i % 4]}{character}{words[(i // 4) % 4]}{character}" for i in range(200)]


# Of CJK, Devanagari, Tibetan, Ethiopic, Khmer and Arabic; digits; signs.
@pytest.mark.parametrize("character", [*"。、।་።។،১४٣€☺", "\u200c"])
@pytest.mark.parametrize("well_held", [False, True])
def test_every_frequent_character_becomes_a_piece(tmp_path, capsys, character, well_held):
    letters = "აბგდევზთიკლმნოპჟ"
    words = [] if well_held else [first + second for first in letters for second in letters]
    (tmp_path / "text.txt").write_text("\n".join(texts_with(character) + words * 9))
    path = str(tmp_path / "large.model")
    flags = flags_of(tmp_path, 90, path)
    assert extend.main([MINI, *flags]) == 0
    row = next(r for r in capsys.readouterr().out.splitlines() if "unknown pieces, after" in r)
    assert re.search(r" ok +0\.00%, [0-9.]+% before", row)
    encoder = processor(read_model(path))
    assert encoder.decode(encoder.encode(f"mere{character}pere")) == f"mere{character}pere"
    assert encoder.unk_id() not in encoder.encode(character)


def test_unknown_pieces_that_stay_are_named(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("\n".join(texts_with("、") + texts_with("。")))
    flags = flags_of(tmp_path, 1, f"{tmp_path}/x.model")
    extend.main([MINI, *flags, "--dry_run"])
    said = capsys.readouterr().out
    assert re.search("unknown pieces, after +warning", said)
    assert "U+300" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["▁de"], "exists already"),
        (["▁bună ziua"], "2 words"),
        (["▁\u200b"], "nothing"),
        (["▁nouă", "▁nouă"], "given twice"),
        (["▁漢字"], "does not know"),
        (["▁me\u200cre"], "reads as a blank"),
    ],
)
def test_impossible_pieces_are_refused(pieces, words, reason):
    with refuses(f"the piece {words[0]!r}") as refusal:
        extend.extend(pieces, words)
    assert reason in refusal.value.why


def test_a_piece_that_the_model_never_gives_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(SentencePieces, "score", lambda self, old: -1000.0)
    (tmp_path / "words.txt").write_text("constituțională", encoding="utf-8")
    with refuses() as refusal:
        extend.main([MINI, "--pieces", f"{tmp_path}/words.txt", "--out", f"{tmp_path}/a.model"])
    assert "'▁constituțională'" in refusal.value.why
    assert not (tmp_path / "a.model").exists()
