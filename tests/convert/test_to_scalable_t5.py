"""Checkpoints for upstream's scalable_t5, and of it, through the command."""

import json
import shutil

import numpy as np
import pytest

from command_line import gin_reader
from convert import __main__ as converter
from convert import atomic_output
from convert.model_config import Sizes
from fakes.convert_fakes import golden_run, golden_sizes
from fakes.paths import GOLDEN
from t5x.checkpointing import scalable_t5
from t5x.checkpointing.reader import open_checkpoint

UMT5 = GOLDEN / "scalable_t5" / "umt5"


def same(a, b):
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name].read(), b[name].read()) for name in a)


def upstreams_run(folder):
    """A run as upstream leaves it, whose gin binds fields that our network lacks."""
    shutil.copytree(UMT5 / "legacy", folder)
    config = json.loads((UMT5 / "config.json").read_text())["config"]
    config |= {"scan_layers": True, "param_scan_axis": 1}
    lines = [f"network.T5Config.{field} = {value!r}" for field, value in config.items()]
    gin = "from t5x.examples.scalable_t5 import network\n" + "\n".join(lines) + "\n"
    (folder / "config.gin").write_text(gin)


def test_upstreams_checkpoint_becomes_a_folder_of_hugging_face(tmp_path):
    upstreams_run(tmp_path / "run")
    assert converter.main([str(tmp_path / "run"), "--vocabulary", "none"]) == 0
    folder = tmp_path / "run_hf" / "checkpoint_3"
    assert json.loads((folder / "config.json").read_text())["model_type"] == "umt5"
    assert atomic_output.read_record(folder)["proof"]["largest_difference"] < 1e-4


def test_our_checkpoint_becomes_upstreams(tmp_path):
    golden_run(tmp_path / "run")
    (tmp_path / "run" / "vocabulary.model").write_bytes(b"pieces")
    with (tmp_path / "run" / "config.gin").open("a") as gin:
        gin.write("\nseqio.SentencePieceVocabulary.extra_ids = 300\n")
    command = ["to_scalable_t5", str(tmp_path / "run"), str(tmp_path / "theirs")]
    assert converter.main(command) == 0
    theirs, sizes = tmp_path / "theirs", golden_sizes("t5_1_1")
    layers, width = sizes.num_encoder_layers, sizes.emb_dim
    stored = theirs / "checkpoint_25" / "target.encoder.encoder.attention.query.kernel" / ".zarray"
    shape = [width, layers, sizes.num_heads, sizes.head_dim]
    assert json.loads(stored.read_text())["shape"] == shape
    ours = open_checkpoint(str(tmp_path / "run" / "checkpoint_25"))
    same(open_checkpoint(str(theirs / "checkpoint_25")), scalable_t5.with_own_tables(ours))
    assert (theirs / "vocabulary.model").read_bytes() == b"pieces"
    text = (theirs / "config.gin").read_text()
    assert "from t5x.examples.scalable_t5 import network" in text
    assert "own_relative_bias" not in text
    bound = gin_reader.Bindings.read(text).of("SentencePieceVocabulary")
    assert bound == {"extra_ids": 300}
    assert Sizes.from_fields(gin_reader.Bindings.read(text).of("T5Config")) == sizes


def test_a_folder_with_a_run_is_kept(tmp_path, capsys):
    golden_run(tmp_path / "run")
    folder = str(tmp_path / "run")
    with pytest.raises(SystemExit, match="2"):
        converter.main(["to_scalable_t5", folder, folder])
    assert "holds a run already" in capsys.readouterr().err


def test_another_network_is_refused(tmp_path, capsys):
    golden_run(tmp_path / "run")
    command = ["to_scalable_t5", str(tmp_path / "run"), str(tmp_path / "theirs")]
    with pytest.raises(SystemExit, match="2"):
        converter.main([*command, "--config", "t5_1_1/base"])
    assert "not the network" in capsys.readouterr().err
    assert not (tmp_path / "theirs").exists()
