"""Checkpoint and vocabulary change together: rows follow their pieces, and logits stay."""

import dataclasses
import json

import numpy as np
import pytest

from convert import __main__ as converter
from convert import atomic_output
from convert.formats import t5x_checkpoint_writer
from convert.formats.sentencepiece_model import read_model, write_model
from convert.run import rewrite
from fakes.convert_fakes import FAMILIES, arrays, tree
from fakes.paths import ROOT
from fakes.refuses import refuses
from t5x.checkpointing import lazy_array
from t5x.checkpointing.reader import open_checkpoint
from vocabulary import checkpoint, extend, trim

DATA = ROOT / "data" / "ro_mini"
MINI = DATA / "ro_mini.model"
VALIDATION = str(DATA / "validation.jsonl")
EMBEDDING, HEAD = "target/token_embedder/embedding", "target/decoder/logits_dense/kernel"
MOMENTS = "state/param_states/token_embedder/embedding"


def write(folder, sizes, vocabulary=MINI, **changes):
    """A run of random weights, with Adafactor's state of the embedding, at step 7."""
    state = {f"target/{name}": array for name, array in tree(arrays(sizes)).items()}
    random = np.random.default_rng(1)
    moments = {
        "v_row": random.random(sizes.vocab_size, np.float32),
        "v_col": random.random(sizes.emb_dim, np.float32),
        "v": np.zeros(1, np.float32),
        "m": random.random((sizes.vocab_size, sizes.emb_dim), np.float32),
    }
    state |= {f"{MOMENTS}/{k}": lazy_array.from_numpy(v) for k, v in moments.items()}
    state["state/step"] = lazy_array.from_numpy(np.int32(7))
    state |= {name: lazy_array.from_numpy(array) for name, array in changes.items()}
    t5x_checkpoint_writer.write(folder / "checkpoint_7", state)
    (folder / "config.gin").write_text(rewrite.gin_of(sizes))
    (folder / "vocabulary.model").write_bytes(vocabulary.read_bytes())
    settings = {"num_beams": 4, "forced_bos_token_id": 7, "bad_words_ids": [[7]]}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


def read(run):
    return {name: a.read() for name, a in open_checkpoint(str(run / "checkpoint_7")).items()}


SIZES = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write(tmp_path_factory.mktemp("runs") / "old", SIZES)


def test_trim_cuts_the_rows_with_their_pieces_and_the_new_run_is_converted(run, tmp_path, capsys):
    new = tmp_path / "new"
    flags = ["--corpus", VALIDATION, "--size", "512", "--checkpoint", str(run), "--out", str(new)]
    trim.main([str(run), *flags])
    printed = " ".join(capsys.readouterr().out.split())  # lines are filled to the terminal's width
    assert "2,048 rows, 0.1 M parameters" in printed
    assert "512 rows" in printed
    assert "logits of kept pieces equal" in printed
    before, after = read(run), read(new)
    old_ids = np.array(json.loads((new / "vocabulary.rows.json").read_text()))[:, 0]
    pieces = [read_model(str(f / "vocabulary.model")).pieces for f in (run, new)]
    assert [pieces[0][i] for i in old_ids] == list(pieces[1])
    for name, value in after.items():
        if name == HEAD:
            wanted = before[name][:, old_ids]
        elif name in (EMBEDDING, f"{MOMENTS}/m", f"{MOMENTS}/v_row"):
            wanted = before[name][old_ids]
        else:
            wanted = before[name]
        assert np.array_equal(value, wanted), name
    assert before.keys() == after.keys()
    assert before[EMBEDDING].shape == (2048, 16)
    assert after[EMBEDDING].shape == (512, 16)
    assert converter.main([str(new), "--formats", "pytorch"]) == 0  # like any other run
    facts = atomic_output.read_record(tmp_path / "new_hf" / "checkpoint_7")
    assert facts["sizes"]["vocab_size"] == 512
    assert facts["generation"] == {"num_beams": 4}, "no ids of the old vocabulary"
    assert facts["proof"]["tokenizer_texts"] > 0


def test_extend_starts_new_rows_from_the_mean_of_their_old_pieces(run, tmp_path, capsys):
    new = tmp_path / "new"
    (tmp_path / "words.txt").write_text("constituțională\nconstituțional\n", encoding="utf-8")
    flags = ["--pieces", str(tmp_path / "words.txt"), "--checkpoint", str(run), "--out", str(new)]
    extend.main([str(run), *flags])
    assert "1,947 pieces differ by" not in capsys.readouterr().out
    before, after = read(run), read(new)
    sources = json.loads((new / "vocabulary.rows.json").read_text())
    assert after[EMBEDDING].shape == (2176, 16)  # 2,050 pieces, rounded up
    assert after[HEAD].shape == (16, 2176)
    for new_id in (1948, 1949):
        old = sources[new_id]
        assert len(old) > 1
        np.testing.assert_allclose(after[EMBEDDING][new_id], before[EMBEDDING][old].mean(0), 1e-5)
        np.testing.assert_allclose(after[HEAD][:, new_id], before[HEAD][:, old].mean(1), 1e-5)
    assert np.array_equal(after[EMBEDDING][:1948], before[EMBEDDING][:1948])
    assert np.array_equal(after[EMBEDDING][1950:2050], before[EMBEDDING][1948:])


def test_rows_of_sentinels_that_seqio_added_are_kept(tmp_path):
    model = read_model(str(MINI))
    del model.pieces[-100:]
    write_model(model, str(tmp_path / "outside.model"))
    old = write(tmp_path / "old", SIZES, tmp_path / "outside.model")
    flags = ["--corpus", VALIDATION, "--size", "512", "--extra_ids", "100"]
    flags += ["--checkpoint", str(old), "--out", str(tmp_path / "new")]
    trim.main([str(old), *flags])
    assert np.array_equal(read(tmp_path / "new")[EMBEDDING][-100:], read(old)[EMBEDDING][-100:])


def test_a_wrong_row_is_found_by_the_logits(run, tmp_path, monkeypatch):
    right = checkpoint.average_rows
    wrong = lambda table, sources, axis: np.roll(right(table, sources, axis), 1, axis)
    monkeypatch.setattr(checkpoint, "average_rows", wrong)
    flags = ["--corpus", VALIDATION, "--size", "512", "--checkpoint", str(run)]
    with refuses() as refusal:
        trim.main([str(run), *flags, "--out", str(tmp_path / "new")])
    assert "'logits of kept pieces equal'" in refusal.value.why
    assert not list(tmp_path.iterdir())


def test_words_that_are_tokenized_differently_stop_everything(run, tmp_path, monkeypatch):
    right = trim.trim

    def wrong(*args):
        change = right(*args)
        first, *others = change.sources
        return dataclasses.replace(change, sources=[first, *reversed(others)])

    monkeypatch.setattr(trim, "trim", wrong)
    flags = ["--corpus", VALIDATION, "--size", "512", "--checkpoint", str(run)]
    with refuses() as refusal:
        trim.main([str(run), *flags, "--out", str(tmp_path / "new")])
    assert "words are tokenized differently" in refusal.value.why
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "setting", "advice"),
    [
        ("vocabulary", "{folder}/old/checkpoint_7", "vocabulary"),
        ("no sentinels", "the model", "--extra_ids 100"),
        ("gin", "the checkpoint", "--config"),
        ("no gin", "{folder}/old", "--config"),
        ("nan", "target/token_embedder/embedding", "checkpoint"),
        ("a run", "{folder}/new", "empty folder"),
        ("other files", "{folder}/new", "empty folder"),
    ],
)
def test_an_error_is_one_sentence_and_leaves_nothing(tmp_path, change, setting, advice):
    values = arrays(SIZES)["token_embedder/embedding"]
    values[3, 5] = np.nan
    changes = {EMBEDDING: values} if change == "nan" else {}
    old, out, model = write(tmp_path / "old", SIZES, **changes), tmp_path / "new", MINI
    if change in ("vocabulary", "no sentinels"):
        shorter = read_model(str(MINI))
        gone = slice(200, 328) if change == "vocabulary" else slice(-100, None)
        del shorter.pieces[gone]
        model = tmp_path / "shorter.model"
        write_model(shorter, str(model))
    elif change == "gin":
        other = dataclasses.replace(SIZES, num_encoder_layers=4)
        (old / "config.gin").write_text(rewrite.gin_of(other))
    elif change == "no gin":
        (old / "config.gin").unlink()
    elif change in ("a run", "other files"):
        out.mkdir()
        (out / {"a run": "config.gin", "other files": "thesis.tex"}[change]).write_text("precious")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    flags = ["--corpus", VALIDATION, "--size", "512", "--checkpoint", str(old)]
    with refuses(setting.format(folder=tmp_path)) as refusal:
        trim.main([str(model), *flags, "--out", str(out)])
    assert advice in refusal.value.to_set
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
