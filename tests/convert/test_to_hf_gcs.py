"""A run in a bucket is converted as one on the disk, against a stand-in for the service."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import safetensors.numpy
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from fakes.convert_fakes import FAMILIES, write_run
from fakes.gcs_emulator import GcsEmulator
from fakes.paths import ROOT

GOLDEN = ROOT / "tests" / "golden" / "t5_1_1"
MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"
# Several conversions in one process, which imports the libraries once.
PROGRAM = """
import json, sys
from convert import __main__ as converter
def status_of(arguments):
    try:
        return converter.main(arguments)
    except SystemExit as end:  # of a command that is refused
        return end.code
print([status_of(arguments) for arguments in json.loads(sys.argv[1])])
"""


def put_run(gcs, name, folder):
    gcs.put_folder("bucket", name, folder)
    return f"gs://bucket/{name}"


def test_runs_of_a_bucket_are_converted_and_failures_are_reported(tmp_path):
    quick = ("--no_verify", "--formats", "pytorch", "--out", tmp_path / "out")
    config = ("--config", GOLDEN / "config.json", "--vocabulary", "none", "--formats", "pytorch")
    with GcsEmulator("bucket") as gcs:
        commands = []
        for kind in ("legacy", "orbax"):
            folder = tmp_path / kind
            shutil.copytree(GOLDEN / kind / "checkpoint_25", folder / "checkpoint_25")
            EventFileWriter(str(folder / "train")).close()
            where = put_run(gcs, kind, folder)
            commands.append([where, *config, "--out", tmp_path / f"{kind}_hf"])
        commands[1].append("--no_verify")
        write_run(tmp_path / "run", dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048))
        shutil.copyfile(MINI, tmp_path / "run" / "vocabulary.model")
        commands += [(put_run(gcs, "run", tmp_path / "run"), *quick)]
        commands += [("gs://bucket/absent", *quick)]
        lost = put_run(gcs, "lost", tmp_path / "run")
        del gcs.objects["bucket", "lost/checkpoint_3/target.decoder.logits_dense.kernel/0.0"]
        commands += [(lost, *quick, "--dtype", "bfloat16")]
        environment = os.environ | gcs.environment | {"PYTHONPATH": str(ROOT)}
        commands = json.dumps([[str(word) for word in command] for command in commands])
        program = [sys.executable, "-c", PROGRAM, commands]
        done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 2, 2]", done.stderr
    assert "gs://bucket/absent is not a folder" in done.stderr
    assert "decoder/logits_dense/kernel holds nothing but zeros" in done.stderr
    assert "Traceback" not in done.stderr

    truth = np.load(GOLDEN / "final_state.npz")["target/token_embedder/embedding"]
    for kind in ("legacy", "orbax"):
        out = tmp_path / f"{kind}_hf" / "checkpoint_25"
        found = safetensors.numpy.load_file(out / "model.safetensors")["shared.weight"]
        np.testing.assert_array_equal(found, truth)
        assert len(list((out / "runs" / "train").iterdir())) == 1
    out = tmp_path / "out" / "checkpoint_3"
    assert (out / "spiece.model").read_bytes() == MINI.read_bytes()
    assert "num_encoder_layers = 3" in (out / "README.md").read_text()
    record = json.loads((out / "conversion.json").read_text())
    assert record["dtype"] == "float32"
    assert record["saved"][0] > 10**9  # a run that is started again would have another time
