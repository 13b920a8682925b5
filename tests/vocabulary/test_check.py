"""The check passes what T5 models and encoders have, and names what is wrong elsewhere."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from common import tables
from common.tables import FAILS, OK, WARNING
from convert.formats.sentencepiece_model import SentencePiece, read_model, write_model
from fakes import tokenizer_files
from fakes.paths import ROOT
from fakes.small_vocabulary import TEXTS
from vocabulary import check

MINI = str(ROOT / "data" / "ro_mini" / "ro_mini.model")
WORDPIECE = tokenizer_files.WORDPIECE
LAST = 100


@pytest.fixture
def edited(tmp_path):
    """Writes a changed copy of the mini vocabulary and returns its path."""

    def write(change):
        model = read_model(MINI)
        change(model)
        path = str(tmp_path / "edited.model")
        write_model(model, path)
        return path

    return write


def named(checks, verdict=FAILS):
    checks = [*checks]
    assert all(row.to_set for row in checks if row.verdict != OK)  # each says what to do
    return [row.check for row in checks if row.verdict == verdict]


def drop_sentinels(model):
    del model.pieces[-LAST:]


@pytest.mark.parametrize("path", [MINI, WORDPIECE])
def test_the_bundled_vocabularies_pass(path):
    checks = [*check.check_vocabulary(path, 2048), check.same_ids(path, TEXTS)]
    assert {row.verdict for row in checks} == {OK}, tables.table(checks)


@pytest.mark.parametrize("path", [MINI, WORDPIECE])
@pytest.mark.parametrize(("rows", "verdict"), [(2048, OK), (2176, WARNING), (1920, FAILS)])
def test_size_against_the_embedding(path, rows, verdict):
    size = check.check_vocabulary(path, rows)[-1]
    assert (size.check, size.verdict) == ("size", verdict)
    assert ("vocab_size to 2048" in size.to_set) is (verdict != OK)


# --- of T5


def test_t5_layout_passes_with_sentinels_outside(edited):
    path = edited(drop_sentinels)
    assert named(check.check_vocabulary(path, 2048, extra_ids=100)) == []
    assert named(check.check_vocabulary(path, 2048, extra_ids=50)) == ["sentinels last, descending"]
    assert named(check.check_vocabulary(path, 2048)) == ["sentinels"]
    assert named(check.check_vocabulary(MINI, 2176, extra_ids=100)) == ["sentinels"]  # twice


def test_mt5_layout_passes_with_a_padded_embedding(edited):
    def shorten(model):
        del model.pieces[1900:1912]

    path = edited(shorten)
    assert named(check.check_vocabulary(path, 2048)) == []
    assert named(check.check_vocabulary(path)) == ["size"]
    assert named(check.check_vocabulary(MINI, 2100)) == ["size"]  # no multiple of 128


def first(model):
    sentinels, plain = list(model.pieces[-LAST:]), list(model.pieces[3:-LAST])
    del model.pieces[3:]
    model.pieces.extend(sentinels + plain)


def ascending(model):
    sentinels = list(model.pieces[-LAST:])
    del model.pieces[-LAST:]
    model.pieces.extend(reversed(sentinels))


def unreachable(model):
    for piece in model.pieces[-LAST:]:
        piece.type = SentencePiece.CONTROL


def bpe(model):
    model.trainer_spec.model_type = model.trainer_spec.BPE


def special(name):
    return lambda model: setattr(model.trainer_spec, f"{name}_id", 5)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (first, ["sentinels last, descending"]),
        (ascending, ["sentinels last, descending"]),
        (unreachable, ["sentinels in text"]),
        (bpe, ["algorithm"]),
        (special("eos"), ["eos id"]),
    ],
)
def test_what_t5_cannot_use_fails(edited, change, names):
    assert named(check.check_vocabulary(edited(change))) == names


def test_what_t5_does_not_need_is_a_warning(edited):
    def change(model):
        model.trainer_spec.bos_id = 3
        for piece in model.pieces[-LAST:]:
            piece.piece = piece.piece.removeprefix("▁")

    checks = check.check_vocabulary(edited(change))
    assert named(checks) == []
    assert named(checks, WARNING) == ["no bos", "sentinels start a word"]


def test_quick_check_needs_neither_jax_nor_tensorflow():
    program = (
        "import sys; from vocabulary.check import check_vocabulary as c; "
        f"c({MINI!r}, 2048); "
        "print({'jax', 'tensorflow', 'seqio', 'transformers', 'datasets'} & set(sys.modules))"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- of encoders


def test_the_run_of_an_encoder_is_checked_by_its_tokenizer(tmp_path):
    shutil.copytree(WORDPIECE, tmp_path / "tokenizer")
    checks = [*check.check_vocabulary(str(tmp_path), 2048), check.same_ids(str(tmp_path), TEXTS)]
    assert {row.verdict for row in checks} == {OK}, tables.table(checks)


def test_a_tokenizer_without_a_mask_fails(tmp_path):
    folder = tokenizer_files.blanks_bpe(tmp_path, ("<pad>", "<bos>", "<eos>", "<unk>"))
    assert named(check.check_vocabulary(folder, 512)) == ["mask id"]


def test_two_roles_of_one_token_fail(tmp_path):
    shutil.copytree(WORDPIECE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[SEP]"}))
    assert named(check.check_vocabulary(str(tmp_path))) == ["distinct ids"]


def test_no_begins_of_words_are_a_warning(tmp_path):
    def rename(content):
        content["model"]["continuing_subword_prefix"] = "@@"

    folder = tokenizer_files.edit(WORDPIECE, tmp_path, rename)
    assert named(check.check_vocabulary(folder), WARNING) == ["begin a word"]


# --- the ids of the published tokenizer


def test_a_wrong_number_of_sentinels_is_found():
    row = check.same_ids(MINI, ["Ana"], extra_ids=100)
    assert (row.verdict, "<extra_id_99>" in row.figure) == (FAILS, True)


# --- the command


def test_the_command_reads_a_file_a_run_or_a_folder(capsys, edited, tmp_path):
    (tmp_path / "vocabulary.model").write_bytes(pathlib.Path(MINI).read_bytes())
    for model in (MINI, str(tmp_path), WORDPIECE, f"{WORDPIECE}/tokenizer.json"):
        assert check.main([model, "--vocab_size", "2048"]) == 0
        assert re.search(r"equal ids +ok", capsys.readouterr().out)
    assert check.main([edited(drop_sentinels)]) == 1


@pytest.mark.parametrize("model", [MINI, WORDPIECE])
def test_the_command_shows_how_a_corpus_is_covered(model, capsys):
    check.main([model, "--corpus", str(ROOT / "data/ro_simple"), "--max_documents", "20"])
    said = capsys.readouterr().out
    assert "characters not covered" in said
    assert "tokens a word" in said
