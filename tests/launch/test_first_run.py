"""From a new clone to a converted model on a spot slice, as docs/pods.md tells it.

The commands are typed as the page prints them, and one step after the other is forgotten at first:
the sentence that refuses the next command names it.
"""

import os
import re
import subprocess
import sys

import pytest

from fakes.paths import FAST_COMPILATION, MINI
from fakes.simulated_pod import ZONE, Pod
from t5x.checkpointing import layout

PACKAGES = ("common", "convert", "evaluation", "gin", "preflight", "t5x", "tasks", "vocabulary")
RUN = ("run", "ro", ZONE, "launch/uk_t5x_tiny.sh")
SHORT = (
    "--gin.TRAIN_STEPS=60",
    "--gin.BATCH_SIZE=4",
    "--gin.EVAL_PERIOD=1000",
    "--gin.EVAL_STEPS=1",
    "--gin.utils.SaveCheckpointConfig.period=10",
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 18}",
)


class User:
    """A new clone with a .venv, in which commands are typed."""

    def __init__(self, pod, environment):
        self.pod = pod
        self.environment = {**os.environ, **environment}
        (pod.clone / ".venv").symlink_to(sys.prefix)
        for name, value in (("user.name", "a"), ("user.email", "a@b")):
            self.type(f"git config {name} {value}")

    def type(self, command):
        line = f"source .venv/bin/activate && {command}"
        how = {"cwd": self.pod.clone, "env": self.environment, "text": True, "timeout": 600}
        done = subprocess.run(["bash", "-c", line], capture_output=True, **how)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refused(self, *words):
        process = self.pod.ask(*words)
        assert process.returncode == 2, process
        return process.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_language_is_trained_on_a_spot_slice_from_a_new_clone(tmp_path):
    environment = {
        "PYTHON": sys.executable,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": FAST_COMPILATION,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
    }
    home = {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    pod = Pod(tmp_path, 1, PACKAGES, environment | home, TPU_PASS="", TPU_SSH_SECONDS="600")
    with pod:
        subprocess.run(
            [*pod.git, "config", "receive.denyCurrentBranch", "updateInstead"], check=True
        )
        user = User(pod, {**home, **environment})
        (pod.clone / "texts").mkdir()
        for path in MINI.glob("*.jsonl"):
            (pod.clone / "texts" / path.name).write_bytes(path.read_bytes())

        # The slice, the files of the language, and the vocabulary.
        assert "the slice ro does not exist in us-central2-b: python3 launch/tpu.py create ro" in (
            user.refused(*RUN)
        )
        pod.do("create", "ro", ZONE, "v4-8", "--spot", "--queued")
        assert "'launch/uk_t5x_tiny.sh' is not a launch script" in user.refused(*RUN)
        report = user.type("python -m tasks.new_language --corpus texts --name uk --size tiny")
        assert 'CorpusSource("./texts"' in (pod.clone / "tasks/uk.py").read_text()
        refusal = user.refused(*RUN)
        vocabulary = re.search(r"--out (\S+)", report)[1]
        assert f"{vocabulary} does not exist, which the run reads: make it by python -m" in refusal
        command = re.search(r"python -m vocabulary.train .*\\\n.*", report)[0]
        told = user.type(command)

        # The commit: the commands of the refusal, of which the push is forgotten.
        files = ["gin/uk_t5x_tiny.gin", "launch/uk_t5x_tiny.sh", "tasks/uk.py", vocabulary]
        assert f"git add {vocabulary} && git commit" in told
        added = re.search(r"git add (.*?) && git commit.*", report)
        assert sorted(added[1].split()) == sorted(files)
        refusal = user.refused(*RUN)
        lacking = re.search(r" lacks (.*): git add (.*?) && (.*) && git push; or --send", refusal)
        assert {*files, "texts/validation.jsonl"} <= {*lacking[2].split()}
        user.type(f"git add {lacking[2]} && {lacking[3]}")
        assert re.search(r" lacks .*: git push; or --send", user.refused(*RUN))
        user.type("git push -q")

        # The worker.
        assert "a run cannot start on worker 0" in user.refused(*RUN)
        pod.do("setup", "ro", ZONE)
        pod.do(*RUN, *SHORT)
        assert re.search("worker 0 +training", pod.do("status", "ro", ZONE))
        pod.wait_for(lambda: layout.latest_step(str(pod.run_dir)) or 0, 10, 600)
        pod.cloud.preempt("ro")
        assert "ro in us-central2-b is PREEMPTED" in user.refused("status", "ro", ZONE)
        output = pod.do("supervise", *RUN[1:], *SHORT, timeout=1200)
        assert re.search(r"ro has finished: .* step 60/60", output), output
        assert re.search(r" from step [1-5]0", pod.do("logs", "ro", ZONE))
        pod.do("delete", "ro", ZONE, "--yes")
        user.type(f"bash convert/convert.sh {pod.run_dir}")
        assert [*pod.folder.rglob("model.safetensors")]
