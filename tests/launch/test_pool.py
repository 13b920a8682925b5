"""supervise --any takes the first slice that is granted, and leaves nothing that costs money."""

import re
import subprocess
import time

import pytest

from fakes.shell import executable, sentence
from fakes.simulated_pod import flags_of
from launch import pool
from launch.commit import Failed

ZONES = "us-east5-a,europe-west4-b"
RUN = ["ro", ZONES, "launch/like_t5x.sh", "--any", "v6e-16,v4-32"]
A, B, C, D = (f"ro-{type}-{zone}" for type in ("v6e-16", "v4-32") for zone in ZONES.split(","))


@pytest.fixture
def scarce(pair):
    """A pod of two workers whose requests wait, except the last one's."""
    for name in (A, B, C):
        pair.cloud.queue_ends(name, "WAITING_FOR_RESOURCES")
    return pair


def finish(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out


def test_the_first_slice_that_is_granted_trains_and_all_are_deleted(scarce):
    out = scarce.do("supervise", *RUN, "--gin.A=1", STEPS="8", TPU_SPOT="1")
    asked = scarce.cloud.calls("queued-resources create")
    assert [call[4] for call in asked] == [A, B, C, D]
    assert {flags_of(call)["--accelerator-type"] for call in asked} == {"v6e-16", "v4-32"}
    assert all("--spot" in flags_of(call) for call in asked)
    assert re.search(rf"{D} has finished: .* step 8/8", out)
    assert scarce.cloud.left() == set()


def test_another_slice_takes_the_place_of_one_that_is_lost(scarce):
    scarce.hold_at(5)
    process = scarce.start("supervise", *RUN, STEPS="12")
    scarce.wait_for_step(5)
    scarce.wait_for(lambda: scarce.cloud.left() == {D}, True)  # the others are deleted
    scarce.cloud.queue_ends(D, "WAITING_FOR_RESOURCES")
    scarce.cloud.queue_ends(A, "ACTIVE")
    scarce.cloud.preempt(D)
    scarce.release()
    assert re.search(rf"{A} has finished: .* step 12/12", finish(process))
    assert scarce.cloud.left() == set()


def test_a_type_without_quota_is_left_out_and_without_any_it_is_refused(scarce):
    scarce.cloud.refuse("v6e-16")
    scarce.do("supervise", *RUN, STEPS="3")
    assert len(scarce.cloud.calls("queued-resources create")) == 4
    scarce.cloud.refuse("v4-32")
    process = scarce.ask("supervise", *RUN)
    assert process.returncode == 2
    assert "Limit: 0 in zone us-east5-a." in process.stderr, "gcloud's own words"
    assert process.stderr.splitlines()[-1].startswith("tpu.py: gcloud refuses all requests: ")


def test_a_request_that_has_failed_is_deleted_and_made_again(scarce):
    scarce.cloud.queue_ends(D, "FAILED")
    process = scarce.start("supervise", *RUN, STEPS="3")
    while not scarce.cloud.calls(f"queued-resources delete {D}"):
        assert process.poll() is None
        time.sleep(0.05)
    scarce.cloud.queue_ends(D, "ACTIVE")
    finish(process)
    assert scarce.cloud.left() == set()


def test_a_deletion_that_fails_is_tried_again(scarce):
    scarce.cloud.write("faults", {"queued-resources delete": 5})
    scarce.do("supervise", *RUN, STEPS="3")
    assert scarce.cloud.left() == set()


def test_a_run_that_is_refused_leaves_nothing_either(scarce):
    scarce.run_dir.mkdir()
    (scarce.run_dir / "fail_0").write_text("0 2\n")
    (scarce.run_dir / "fail_1").write_text("0 1\n")
    process = scarce.ask("supervise", *RUN)
    assert "rejects its configuration" in process.stderr
    assert scarce.cloud.left() == set()


def test_after_ctrl_c_the_run_goes_on_and_the_same_command_takes_it_up(scarce):
    scarce.hold_at(5)
    process = scarce.start("supervise", *RUN, STEPS="12")
    scarce.wait_for_step(5)
    scarce.wait_for(lambda: scarce.cloud.left() == {D}, True)
    process.send_signal(2)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 130
    assert f"{D} in europe-west4-b and its run are left" in out
    assert scarce.cloud.left() == {D}
    process = scarce.start("supervise", *RUN, STEPS="12")
    asked = len(scarce.cloud.calls("tpu-vm ssh"))
    scarce.wait_for(lambda: len(scarce.cloud.calls("tpu-vm ssh")), asked + 2)  # it trains
    scarce.release()
    out = finish(process)
    assert re.search(rf"{D} has finished: .* step 12/12", out)
    assert "is started on" not in out
    assert scarce.cloud.left() == set()


def test_ctrl_c_before_a_slice_is_granted_leaves_no_request(scarce):
    scarce.cloud.queue_ends(D, "WAITING_FOR_RESOURCES")
    process = scarce.start("supervise", *RUN)
    scarce.wait_for(lambda: len(scarce.cloud.calls("queued-resources create")), 4)
    process.send_signal(2)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "are left" not in out
    assert scarce.cloud.left() == set()


def test_a_flex_start_slice_saves_before_its_end_and_another_follows(scarce):
    process = scarce.start("supervise", *RUN, "--flex", "124s", STEPS="100000")
    first = scarce.cloud.folder / f"slices/{D}/about.json"
    while not first.exists() or scarce.step() < 1:
        assert process.poll() is None
        time.sleep(0.05)
    created = scarce.cloud.read(f"slices/{D}/about")["created"]
    while scarce.cloud.calls("queued-resources delete")[-1][4] != D:
        assert process.poll() is None
        time.sleep(0.05)
    assert time.time() < created + 124, "it is given back before it ends"
    while scarce.cloud.read(f"slices/{D}/about") in (None, {"created": created}):
        time.sleep(0.05)
    process.send_signal(2)
    out, _ = process.communicate(timeout=240)
    assert re.search(r"saved .*Stopped by SIGTERM|worker 0 +saved", out), out
    flags = flags_of(scarce.cloud.calls("queued-resources create")[-1])
    assert flags["--provisioning-model"] == "flex-start"
    assert flags["--max-run-duration"] == "124s"
    assert "--spot" not in flags


@pytest.mark.parametrize("duration", ["", "1", "h", "24", "24h5", "-3h", "8d", "169h"])
def test_a_duration_that_is_none_is_refused(duration):
    with pytest.raises(Failed, match="--flex is "):
        pool.seconds_of(duration)


def test_durations():
    assert list(map(pool.seconds_of, ("90s", "24h", "1d12h", "7d"))) == [90, 86400, 129600, 604800]


def test_each_type_trains_with_the_flags_that_fit_it(scarce):
    script = """#!/bin/sh
case "$*" in
  *preflight.files*) printf 'gin/like_t5x.gin\\t\\n' ;;
  *slice=v4-32*) echo --gin.trainer.Trainer.num_microbatches=4 ;;
  *) echo 'Error: like_t5x on v6e-16: needs 99.0 GiB of 31.25; name a larger type.' >&2; exit 2 ;;
esac
"""
    executable(scarce.clone / ".venv/bin/python", script)
    origin = scarce.folder / "origin/gin"
    origin.mkdir()
    (origin / "like_t5x.gin").write_text("A = 1")
    scarce.commit("a recipe")
    subprocess.run(["git", "-C", scarce.clone, "pull", "-q"], check=True)
    scarce.hold_at(2)
    process = scarce.start("supervise", *RUN, "--gin.A=2", STEPS="3")
    scarce.wait_for_step(2)
    flags = (scarce.cloud.home(D, 0) / "flags").read_text().splitlines()
    assert flags == ["--gin.trainer.Trainer.num_microbatches=4", "--gin.A=2"]
    scarce.release()
    out = finish(process)
    assert "v6e-16 is left out: Error: like_t5x on v6e-16: needs 99.0 GiB" in out
    assert [call[4] for call in scarce.cloud.calls("queued-resources create")] == [C, D]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["supervise", *RUN[:3], "--flex", "24h"], "several zones"),
        (["supervise", "ro", "us-east5-a", RUN[2], "--flex", "24h"], "--flex needs --any"),
        (["supervise", *RUN, "--flex", "8d"], "set it to 7d"),
        (["status", "ro", ZONES], "several zones"),
        (["supervise", *RUN[:3], "--any", "x9-4"], "TPU_RUNTIME"),
    ],
)
def test_a_wrong_call_is_one_sentence(words, named, pair):
    assert named in sentence(pair.ask(*words, MODEL_DIR="gs://bucket/run"))
    assert pair.cloud.left() == set()
