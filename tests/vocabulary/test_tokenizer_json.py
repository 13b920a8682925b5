"""An encoder's tokenizer.json, cut and extended: equal ids of what is kept, new pieces used."""

import json

import numpy as np
import pytest
import tokenizers
import transformers

from common.new_files import write_files
from convert import from_hf
from convert.run import rewrite
from fakes import tokenizer_files
from fakes.published import published_encoder
from fakes.refuses import refuses
from fakes.small_vocabulary import TEXTS
from vocabulary import checkpoint, extend, trim
from vocabulary.tokenizer_json import TokenizerPieces


def like_mmbert(folder):
    """A BPE with ▁ for blanks and an unknown piece."""
    made = tokenizer_files.blanks_bpe(folder.with_name("plain"))
    change = lambda content: content["model"].update(unk_token="<unk>")
    return tokenizer_files.edit(made, folder, change)


KINDS = [tokenizer_files.unigram, tokenizer_files.byte_bpe, like_mmbert]
LINES = [line for text in TEXTS for line in text.splitlines() if line.strip()]
# Letters that no vocabulary here has, of which the words are made often enough to be learned.
OTHER = ["საქართველოს პარლამენტი არის კავკასიაში", "ქვეყანა არის საქართველო"] * 10


@pytest.fixture(scope="module", params=KINDS)
def pieces(request, tmp_path_factory):
    return TokenizerPieces(request.param(tmp_path_factory.mktemp("made") / "folder"))


def given_by(pieces, folder):
    """The ids by name in the published tokenizer, as transformers loads it from a written one."""
    write_files(pieces.files(str(folder)), overwrite=True)
    return transformers.AutoTokenizer.from_pretrained(folder).get_vocab()


@pytest.mark.parametrize("size", [None, 384])
def test_texts_of_kept_pieces_are_cut_as_before(pieces, tmp_path, size):
    """Without a size all used pieces stay; with one, words whose pieces do."""
    usage, _ = trim.count_and_sample(pieces, LINES[:2], 0)
    if size and pieces.size < size:
        size = 256
    change = trim.trim(pieces, usage, size)
    small, sources = change.new, change.sources
    assert [small.names[i] for i in range(small.size)] == [pieces.names[i] for (i,) in sources]
    if size is None:
        for line in LINES[:2]:
            assert [sources[i][0] for i in small.encode(line)] == pieces.encode(line)
    else:
        assert small.size == size < pieces.size
    same = checkpoint.check_same_pieces(change, LINES)
    assert same.verdict == "ok"
    assert not same.figure.startswith("0 of")
    assert given_by(small, tmp_path / "out") == small.ids


def test_pieces_of_a_new_language_are_learned_and_the_old_text_stays(pieces, tmp_path):
    change = extend.learn(pieces, OTHER, 60)
    large, sources = change.new, change.sources
    assert pieces.size < large.size <= pieces.size + 60
    before, after = (checkpoint.bytes_a_piece(some, OTHER) for some in (pieces, large))
    assert after > 1.5 * before
    for line in LINES:
        assert [sources[i] for i in large.encode(line)] == [(i,) for i in pieces.encode(line)]
    for line in OTHER[:2]:  # a new piece starts from those that spelled it
        old = [i for new in large.encode(line) for i in sources[new]]
        assert {*old} == {*pieces.encode(line)}
    assert given_by(large, tmp_path / "out") == large.ids


def test_a_tokenizer_that_pads_does_so_with_the_new_id(tmp_path):
    """Special tokens may stand after the pieces, as ModernBERT's padding does."""
    last = {"pad_token": "<mask>", "pad_id": 300, "pad_type_id": 0, "pad_to_multiple_of": None}
    last |= {"strategy": "BatchLongest", "direction": "Right"}
    folder = tokenizer_files.unigram(tmp_path / "plain")
    made = tokenizer_files.edit(folder, tmp_path / "pads", lambda c: c.update(padding=last))
    pieces = TokenizerPieces(made)
    assert pieces.ids["<mask>"] == 300
    usage, _ = trim.count_and_sample(pieces, LINES[:2], 0)
    small = trim.trim(pieces, usage, 256).new
    write_files(small.files(str(tmp_path / "small")))
    loaded = tokenizers.Tokenizer.from_file(str(tmp_path / "small/tokenizer.json"))
    assert loaded.padding["pad_id"] == loaded.token_to_id("<mask>") == 255


@pytest.mark.parametrize("family", ["xlm-roberta", "modernbert"])
def test_an_encoder_changes_with_its_tokenizer(tmp_path, family, capsys):
    """Embedding, bias of the logits and tokenizer: cut, then extended, then as it was published."""
    folder = tmp_path / "published"
    is_bpe = family == "modernbert"
    make, fewer = (tokenizer_files.byte_bpe, 384) if is_bpe else (tokenizer_files.unigram, 256)
    size = TokenizerPieces(make(tmp_path / "tokenizer")).size
    published_encoder(folder, family, vocab_size=size)
    for file in (tmp_path / "tokenizer").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    if family == "xlm-roberta":  # by which its network is told from RoBERTa's
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config["tokenizer_class"] = "XLMRobertaTokenizer"
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    start, small, large = (str(tmp_path / name) for name in ("start", "small", "large"))
    assert from_hf.main([str(folder), start]) == 0
    text, other = tmp_path / "text.txt", tmp_path / "other.txt"
    text.write_text("\n".join(LINES[:3]))
    other.write_text("\n".join(OTHER))
    flags = ["--corpus", str(text), "--size", str(fewer), "--checkpoint", start, "--out", small]
    assert trim.main([start, *flags, "--dry_run"]) == 0
    assert not (tmp_path / "small").exists()
    assert trim.main([start, *flags]) == 0
    flags = ["--corpus", str(other), "--size", "40", "--checkpoint", small, "--out", large]
    assert extend.main([small, *flags]) == 0
    printed = capsys.readouterr().out
    assert f"0 come, {fewer} stay" in printed
    assert "publishable" in printed
    old, new = (rewrite.last_checkpoint(run) for run in (start, large))
    rows = [
        json.loads((tmp_path / f"{run}/tokenizer.rows.json").read_text()) for run in (small, large)
    ]
    for name in ("token_embedder/embedding", "mlm_head/bias"):
        before, after = (some.arrays[f"target/{name}"].read() for some in (old, new))
        for i, ids in enumerate(rows[1]):
            mean = before[[rows[0][j][0] for j in ids]].mean(0)
            np.testing.assert_allclose(after[i], mean, rtol=1e-5, atol=1e-6)
    assert new.sizes.vocab_size % 128 == 0


def test_wordpiece_is_refused_and_says_so(tmp_path):
    with refuses(tokenizer_files.WORDPIECE):
        trim.main([tokenizer_files.WORDPIECE, "--corpus", "x.txt", "--out", str(tmp_path / "a")])


def test_folders_of_versions_have_tables_of_their_own(pieces, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(LINES))
    write_files(pieces.files(str(tmp_path / "old")))
    for version in ("small-1.5", "small-1.6"):
        words = [str(tmp_path / "old"), "--corpus", str(tmp_path / "text.txt")]
        trim.main([*words, "--out", str(tmp_path / version)])
        assert (tmp_path / f"{version}.rows.json").exists()


def test_a_tokenizer_without_an_unknown_piece_has_no_unknown_text(tmp_path):
    """Its first piece is one like the others."""
    folder = tokenizer_files.blanks_bpe(tmp_path, ["!"])
    pieces = TokenizerPieces(folder)
    assert pieces.encode("!") == [0]
    text = ["Ana are mere!", "!!!"]
    usage, _ = trim.count_and_sample(pieces, text, 0)
    change = trim.trim(pieces, usage)
    assert pieces.lacks("!") == ()
    assert len(change.rows) % 128 == 0
    assert min(map(min, change.rows)) >= 0
    sizes = sum(len(line.encode()) for line in text), sum(len(pieces.encode(t)) for t in text)
    assert checkpoint.bytes_a_piece(pieces, text) == sizes[0] / sizes[1]
