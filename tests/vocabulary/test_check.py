"""The check passes the three layouts that T5 models have, and names what is wrong elsewhere."""

import pathlib
import subprocess
import sys

import pytest

from fakes.paths import ROOT
from vocabulary import check
from vocabulary.check_results import table
from vocabulary.sentencepiece_model import SentencePiece, read_model, write_model

MINI = str(ROOT / "data" / "ro_mini" / "ro_mini.model")
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


def failures(checks):
    return [check.name for check in checks if check.status == "fail"]


def warnings(checks):
    return [check.name for check in checks if check.status == "warn"]


def drop_sentinels(model):
    del model.pieces[-LAST:]


def test_the_bundled_vocabulary_passes():
    checks = check.check_vocabulary(MINI, 2048)
    assert {check.status for check in checks} == {"ok"}, table(checks)


def test_t5_layout_passes_with_sentinels_outside(edited):
    path = edited(drop_sentinels)
    assert failures(check.check_vocabulary(path, 2048, extra_ids=100)) == []
    assert failures(check.check_vocabulary(path, 2048)) == ["sentinels"]


def test_mt5_layout_passes_with_a_padded_embedding(edited):
    def shorten(model):
        del model.pieces[1900:1912]

    path = edited(shorten)
    assert failures(check.check_vocabulary(path, 2048)) == []
    assert failures(check.check_vocabulary(path)) == ["size"]


def test_sentinels_twice_fail():
    assert failures(check.check_vocabulary(MINI, 2176, extra_ids=100)) == ["sentinels"]


def test_sentinels_first_fail(edited):
    def move(model):
        sentinels = list(model.pieces[-LAST:])
        plain = list(model.pieces[3:-LAST])
        del model.pieces[3:]
        model.pieces.extend(sentinels + plain)

    assert failures(check.check_vocabulary(edited(move))) == ["sentinels last, descending"]


def test_sentinels_ascending_fail(edited):
    def turn(model):
        sentinels = list(model.pieces[-LAST:])
        del model.pieces[-LAST:]
        model.pieces.extend(reversed(sentinels))

    checks = check.check_vocabulary(edited(turn))
    assert failures(checks) == ["sentinels last, descending"]
    assert "<extra_id_0> is 1948, must be 2047" in table(checks)


def test_sentinels_that_text_cannot_reach_fail(edited):
    def control(model):
        for piece in model.pieces[-LAST:]:
            piece.type = SentencePiece.CONTROL

    assert failures(check.check_vocabulary(edited(control))) == ["sentinels in text"]


def test_sentinels_without_the_mark_of_a_word_are_a_warning(edited):
    def bare(model):
        for piece in model.pieces[-LAST:]:
            piece.piece = piece.piece.removeprefix("▁")

    checks = check.check_vocabulary(edited(bare))
    assert failures(checks) == []
    assert warnings(checks) == ["sentinels start a word"]


@pytest.mark.parametrize("name", ["pad", "eos", "unk"])
def test_each_special_id_must_be_t5s(edited, name):
    def shift(model):
        setattr(model.trainer_spec, f"{name}_id", 5)

    assert failures(check.check_vocabulary(edited(shift))) == [f"{name} id"]


def test_bos_is_a_warning(edited):
    def begin(model):
        model.trainer_spec.bos_id = 3

    assert warnings(check.check_vocabulary(edited(begin))) == ["no bos"]


def test_bpe_fails(edited):
    def change(model):
        model.trainer_spec.model_type = model.trainer_spec.BPE

    assert "algorithm" in failures(check.check_vocabulary(edited(change)))


@pytest.mark.parametrize(
    ("vocab_size", "verdict", "words"),
    [
        (2048, "ok", "2,048 of vocab_size 2,048"),
        (2176, "warn", "128 rows are never used"),
        (1920, "fail", "set vocab_size to 2048"),
        (2100, "fail", "not a multiple of 128"),
    ],
)
def test_size_against_the_embedding(vocab_size, verdict, words):
    size = check.check_vocabulary(MINI, vocab_size)[-1]
    assert (size.name, size.status) == ("size", verdict)
    assert words in size.detail


def test_command(capsys, edited, tmp_path):
    (tmp_path / "vocabulary.model").write_bytes(pathlib.Path(MINI).read_bytes())
    for model in (MINI, str(tmp_path)):  # a file, or the folder of a run
        check.main([model, "--vocab_size", "2048"])
        printed = capsys.readouterr().out
        assert "equal ids in seqio and Hugging Face  ok" in printed
    with pytest.raises(SystemExit) as error:
        check.main([edited(drop_sentinels)])
    assert error.value.code == 1


def test_quick_check_needs_neither_jax_nor_tensorflow():
    program = (
        "import sys; from vocabulary.check import check_vocabulary as c; "
        f"c({MINI!r}, 2048); "
        "print({'jax', 'tensorflow', 'seqio', 'transformers', 'datasets'} & set(sys.modules))"
    )
    root = ROOT
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
