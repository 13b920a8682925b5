"""A run whose MODEL_DIR is a bucket of S3, in real requests to a server on loopback (moto)."""

import os
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from convert.run.loss_curve import event_files
from fakes.optional_env import optional_python
from fakes.paths import ROOT
from fakes.pods import Pod, arrays, losses

pytestmark = pytest.mark.slow
COPY = "import sys, fsspec; fsspec.filesystem('s3').get(sys.argv[1], sys.argv[2], recursive=True)"


@pytest.fixture(scope="module")
def environment():
    """Start the server, make its bucket, and return the variables that lead there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [optional_python(), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as server:
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"))
                    break
                except urllib.error.URLError:
                    time.sleep(0.2)
            keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
            yield keys | {"AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1"}
        finally:
            server.terminate()


def train(folder, steps, environment, model_dir=None, bindings=""):
    where = {"environment": environment, "model_dir": model_dir, "python": optional_python()}
    programs = folder.parent / "programs"
    with Pod(folder, steps, 1, programs, bindings, **where) as pod:
        (status,) = pod.ends()
    return status, pod.said()


def run(environment, *command):
    """Return the status and output of a Python program."""
    done = subprocess.run(
        [optional_python(), *command],
        cwd=ROOT,
        env=os.environ | environment | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_run_in_a_bucket_is_that_on_a_disk_and_is_converted_there(environment, tmp_path):
    keep_one = "utils.SaveCheckpointConfig.keep = 1\n"
    for steps in (10, 20):
        status, said = train(tmp_path / "a", steps, environment, "s3://bucket/run", keep_one)
        assert status == 0, said
    assert "Resuming from step 10" in said
    status, said = train(tmp_path / "disk", 20, environment)
    assert status == 0, said
    copy = tmp_path / "copy" / "run"
    status, said = run(environment, "-c", COPY, "bucket/run", str(copy))
    assert status == 0, said
    folders = {path.parent.relative_to(copy) for path in event_files(copy)}
    assert pathlib.Path("train") in folders
    assert {"config.gin", "events.jsonl", "log_0.txt"} <= {path.name for path in copy.iterdir()}
    assert not list(copy.glob("checkpoint_10/**/*"))  # all of it was deleted
    expected = arrays(tmp_path / "disk" / "run")
    found = arrays(copy)
    assert found.keys() == expected.keys()
    assert all((found[name] == expected[name]).all() for name in found)
    assert losses(copy) == losses(tmp_path / "disk" / "run")
    out = tmp_path / "hf"
    status, said = run(environment, "-m", "convert", "s3://bucket/run", "--out", str(out))
    assert status == 0, said
    assert (out / "checkpoint_20" / "model.safetensors").is_file()
    infer = ["-m", "t5x.infer", "--gin_file=gin/ro_t5x_tiny.gin"]
    infer += [f"--gin_file={tmp_path}/a/small.gin", "--gin_file=t5x/configs/runs/infer.gin"]
    infer += ["--gin.CHECKPOINT_PATH='s3://bucket/run/checkpoint_20'"]
    infer += ["--gin.INFER_OUTPUT_DIR='s3://bucket/out'"]
    infer += ["--gin.MIXTURE_OR_TASK_SPLIT='validation'", "--gin.infer_script.infer.max_examples=3"]
    status, said = run(environment, *infer)
    assert status == 0, said
    status, said = run(environment, "-c", COPY, "bucket/out", str(tmp_path / "out"))
    assert status == 0, said
    (written,) = (tmp_path / "out").glob("*.jsonl")
    assert len(written.read_text().splitlines()) == 3
    rows = ["Title,Body,Y", *(f"How {i}?,Why?,{('HQ', 'LQ_EDIT')[i % 2]}" for i in range(8))]
    (tmp_path / "valid.csv").write_text("\n".join(rows))
    evaluate = ["-m", "t5x.eval", "--gin_file=gin/quality_tiny.gin"]
    evaluate += [f"--gin_file={tmp_path}/a/small.gin", "--gin_file=t5x/configs/runs/eval.gin"]
    evaluate += ["--gin.MIXTURE_OR_TASK_NAME='quality_tiny'", "--gin.BATCH_SIZE=8"]
    evaluate += [f"--gin.tasks.classification.quality_files.test='{tmp_path}/valid.csv'"]
    evaluate += ["--gin.CHECKPOINT_PATH='s3://bucket/run/checkpoint_20'"]
    evaluate += ["--gin.MIXTURE_OR_TASK_SPLIT='test'"]
    evaluate += ["--gin.EVAL_OUTPUT_DIR='s3://bucket/eval'"]
    status, said = run(environment, *evaluate)
    assert status == 0, said
    status, said = run(environment, "-c", COPY, "bucket/eval", str(tmp_path / "eval"))
    assert status == 0, said
    assert '"accuracy"' in next((tmp_path / "eval").glob("**/*metrics.jsonl")).read_text()
    # The lease was given back, or this would wait.
    status, said = train(tmp_path / "a", 20, environment, "s3://bucket/run")
    assert status == 0, said


@pytest.mark.parametrize(
    ("changed", "model_dir", "reason"),
    [
        ({}, "s3://absent/run", "The specified bucket does not exist"),
        ({"AWS_ACCESS_KEY_ID": ""}, "s3://bucket/other", "Unable to locate credentials"),
    ],
)
def test_a_bucket_that_cannot_be_written_is_refused(
    changed, model_dir, reason, environment, tmp_path
):
    nowhere = {"AWS_EC2_METADATA_DISABLED": "true"}
    status, said = train(tmp_path / "a", 10, environment | nowhere | changed, model_dir)
    assert status == 2, said
    last = said.rstrip().splitlines()[-1]
    assert last.startswith(f"Error: MODEL_DIR is {model_dir}, which cannot be written (")
    assert reason in last
