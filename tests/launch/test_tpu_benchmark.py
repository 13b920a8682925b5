"""launch/tpu_benchmark.sh tries and times a simulated slice."""

import json

import pytest

from fakes.shell import executable, sentence
from fakes.simulated_pod import TRAINER, ZONE, Pod

# Like launch/step_benchmark.sh, on each worker.
BENCHMARK = """#!/usr/bin/env bash
printf '%s\\n' "$@" > "$HOME/flags"
if [[ -f "$HOME/../broken" ]]; then echo "no memory" >&2; exit 1; fi
echo "step 1/1  ours, batch 128"
if [[ "$TPU_WORKER_ID" == 0 ]]; then
  mkdir -p runs
  echo '{"rows": [1]}' > runs/tpu_benchmark.json
  printf ' batch step\\n   128 ours\\n'
fi
"""


@pytest.fixture
def pod(tmp_path):
    with Pod(tmp_path, workers=2) as pod:
        executable(tmp_path / "origin/launch/ro_t5x_tiny.sh", TRAINER)
        executable(tmp_path / "origin/launch/step_benchmark.sh", BENCHMARK)
        pod.commit("fakes")
        pod.make()
        yield pod


def homes(pod):
    return sorted((pod.folder / "cloud").rglob("flags"))


def test_a_smoke_run_ends_with_ok_or_with_what_is_wrong(pod):
    said = pod.do("benchmark", "ro", ZONE, "--smoke", STEPS="20")
    last = said.splitlines()[-1]
    assert last.startswith(
        "ok: ro (v4-32) has trained 20 steps on 2 workers and saved a checkpoint"
    )
    (run,) = pod.run_dir.glob("smoke-*")
    assert (run / "checkpoint").read_text() == "20\n"
    for flags in homes(pod):
        assert flags.read_text().split() == ["--gin.TRAIN_STEPS=20", "--gin.BATCH_SIZE=32"]

    process = pod.ask("benchmark", "ro", ZONE, "--smoke", STEPS="x")
    assert process.returncode == 2
    assert "worker 0: failed, status 1" in process.stderr
    assert "tpu_benchmark.sh: ro cannot train: the run has failed on worker 0, 1 of 2: " in (
        process.stderr
    )


def test_the_table_and_the_json_come_back(pod):
    said = pod.do("benchmark", "ro", ZONE, "--steps", "5")
    assert " batch step\n   128 ours\n" in said
    assert "wrote runs/tpu_benchmark_v4-32.json" in said
    assert all(flags.read_text().split() == ["--steps", "5"] for flags in homes(pod))
    written = json.loads((pod.clone / "runs/tpu_benchmark_v4-32.json").read_text())
    assert written == {"rows": [1]}

    for flags in homes(pod):
        (flags.parents[1] / "broken").touch()
    process = pod.ask("benchmark", "ro", ZONE)
    assert "worker 1: failed, status 1" in process.stderr
    assert "no memory" in process.stderr


@pytest.mark.parametrize(
    ("flags", "settings", "message"),
    [
        (["--smoke", "--steps"], {}, "'--steps' is not understood: bash launch/tpu_benchmark.sh "),
        (["--smoke"], {"MODEL_DIR": ""}, "MODEL_DIR is '' and 2 workers need one folder"),
    ],
)
def test_a_wrong_call_starts_nothing(pod, flags, settings, message):
    process = pod.ask("benchmark", "ro", ZONE, *flags, **settings)
    assert message in sentence(process)
    assert not homes(pod)
