"""A run whose MODEL_DIR is a bucket: it survives or reports faults, and can be copied."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from fakes import pods
from fakes.gcs_emulator import GcsEmulator
from fakes.paths import MINI, ROOT
from fakes.pods import Pod, arrays, losses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate"),
]
BUCKET = "gs://bucket/run"


@pytest.fixture
def gcs(tmp_path):
    with GcsEmulator("bucket", certificates=tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


def train(folder, programs, steps, **where):
    with Pod(folder, steps, 1, programs, **where) as pod:
        (status,) = pod.ends()
    return status, pod.said()


def names(gcs, prefix):
    return {name.removeprefix(f"{prefix}/").split("/")[0] for _, name in gcs.objects}


def test_a_run_in_a_bucket_outlives_faults_and_its_checkpoints_travel(gcs, tmp_path, programs):
    in_bucket = {"environment": gcs.environment, "model_dir": BUCKET}
    for path in ("checkpoint_10.*ocdbt", "train/events", "GET .*checkpoint_10", "upload_id", "/o/"):
        gcs.faults += [(path, fault) for fault in (503, "reset", "slow", 429)]
    status, said = train(tmp_path / "a", programs, 10, **in_bucket)
    assert status == 0, said
    assert not [fault for fault in gcs.faults if "GET" not in fault[0]]  # each has happened
    assert {"checkpoint_10", "train", "config.gin", "events.jsonl"} <= names(gcs, "run")
    # Copied from bucket to disk, it resumes there like the one in the bucket.
    gcs.take_folder("bucket", "run", tmp_path / "b" / "run")
    status, said = train(tmp_path / "b", programs, 20)
    assert status == 0, said
    assert "Resuming from step 10" in said
    # And from disk to bucket.
    gcs.put_folder("bucket", "other", tmp_path / "b" / "run")
    elsewhere = {"environment": gcs.environment, "model_dir": "gs://bucket/other"}
    status, said = train(tmp_path / "c", programs, 30, **elsewhere)
    assert status == 0, said
    assert "Resuming from step 20" in said
    gcs.take_folder("bucket", "other", tmp_path / "d" / "run")
    assert arrays(tmp_path / "d" / "run")["state/step"] == 30
    found = losses(tmp_path / "d" / "run")
    assert list(found) == list(range(1, 31))
    status, said = train(tmp_path / "e", programs, 30)
    assert status == 0, said
    assert losses(tmp_path / "e" / "run") == found


def test_a_bucket_that_refuses_a_save_ends_the_run_in_one_sentence(gcs, tmp_path, programs):
    in_bucket = {"environment": gcs.environment, "model_dir": BUCKET}
    gcs.faults += [("POST .*upload.*checkpoint_20.*ocdbt", 403)] * 1000
    status, said = train(tmp_path / "a", programs, 30, **in_bucket)
    assert status == 1, said
    last = said.rstrip().splitlines()[-1]
    assert re.match(rf"Error: checkpoint_20 .*{BUCKET}.*PERM.*checkpoint_10 is complete", last)
    gcs.faults.clear()
    status, said = train(tmp_path / "a", programs, 30, **in_bucket)
    assert status == 0, said
    assert "Resuming from step 10" in said


def test_a_bucket_that_does_not_answer_is_reported_and_waited_for(gcs, tmp_path, programs):
    gcs.faults += [(".", 503)] * 100_000
    where = {"environment": gcs.environment, "model_dir": BUCKET}
    with Pod(tmp_path / "a", 10, 1, programs, **where) as pod:
        pod.wait_for(lambda: "MODEL_DIR gs://bucket/run has not answered for 10 s" in pod.said())
        gcs.faults.clear()
        assert pod.ends() == [0], pod.said()


@pytest.mark.parametrize(
    ("recipe", "name", "setting", "task_path"),
    [
        (
            pods.SMALL,
            "ro_mini.model",
            "seqio.SentencePieceVocabulary.sentencepiece_model_file",
            "ro_mini_model",
        ),
        (pods.ENCODER, "wordpiece", "tasks.vocabularies.tokenizer.path", "ro_mini_wordpiece"),
    ],
)
def test_a_vocabulary_in_a_bucket_serves_every_command(
    recipe, name, setting, task_path, gcs, tmp_path, programs
):
    """Training, preflight, the vocabulary's own check, conversion; looks, caches and decoding."""
    gcs.put_folder("bucket", "v", MINI)
    file = f"gs://bucket/v/{name}"
    bindings = f"""
import seqio
import tasks.vocabularies
VOCABULARY_FILE = '{file}'
{setting} = %VOCABULARY_FILE
tasks.vocabularies.{task_path}.path = %VOCABULARY_FILE
"""
    where = {"environment": gcs.environment, "recipe": recipe}
    status, said = train(tmp_path, programs, 2, bindings=bindings, **where)
    assert status == 0, said
    run = tmp_path / "run"
    small = f"--gin_file={tmp_path}/small.gin"
    task = "ro_mini_span_corruption" if recipe == pods.SMALL else "ro_mini_bert"
    task_path = f"tasks.vocabularies.{task_path}.path = '{file}'"
    commands = [
        ("preflight", small, "--slice=here", f"--gin.MODEL_DIR='{tmp_path}/new'"),
        ("vocabulary.check", file),
        ("convert", str(run)),
        ("tasks.look", task, f"--gin_bindings={task_path}"),
        ("tasks.cache", f"--task={task}", f"--out={tmp_path}/cache", f"--gin_bindings={task_path}"),
    ]
    if recipe == pods.SMALL:  # an encoder has nothing to decode
        decoding = (small, f"--gin.CHECKPOINT_PATH='{run}/checkpoint_2'")
        decoding += ("--gin.MIXTURE_OR_TASK_NAME='ro_mini_diacritics'",)
        decoding += ("--gin.MIXTURE_OR_TASK_MODULE='tasks.jobs.diacritics'",)
        decoding += ("--gin.TASK_FEATURE_LENGTHS={'inputs': 32, 'targets': 32}",)
        decoding += ("--gin.MIXTURE_OR_TASK_SPLIT='validation[:20]'",)
        for script in ("infer", "eval"):
            folder = f"--gin.{script.upper()}_OUTPUT_DIR='{tmp_path}/{script}'"
            configuration = f"--gin_file=t5x/configs/runs/{script}.gin"
            commands += [(f"t5x.{script}", *decoding, configuration, folder)]
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu", **gcs.environment},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
