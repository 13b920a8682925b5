"""supervise --any takes the first slice that is granted, and leaves nothing that costs money."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import time
import types

import pytest

from fakes.shell import executable, sentence
from fakes.simulated_pod import ZONE, flags_of
from launch import commit, pool, tpu
from launch.commit import Failed
from launch.slices import Report

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
    assert "There is no more capacity" in finish(process)
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
    asked = len(scarce.cloud.calls("tpu-vm ssh"))
    process = scarce.start("supervise", *RUN[:2], f"./{RUN[2]}", *RUN[3:], STEPS="12")
    # It asks both workers at once, so the third call says that it knows that both train.
    scarce.wait_for(lambda: len(scarce.cloud.calls("tpu-vm ssh")), asked + 3)
    scarce.release()
    out = finish(process)
    assert re.search(rf"{D} has finished: .* step 12/12", out)
    assert "is started on" not in out
    assert scarce.cloud.left() == set()


@pytest.mark.parametrize("words", [["launch/other.sh"], ["launch/like_t5x.sh", "other"]])
def test_a_slice_that_trains_something_else_is_named_and_left(words, scarce):
    launch = scarce.folder / "origin/launch"
    shutil.copy(launch / "like_t5x.sh", launch / "other.sh")
    scarce.commit("another run")
    subprocess.run(["git", "-C", scarce.clone, "pull", "-q"], check=True)
    scarce.hold_at(2)
    first = scarce.start("supervise", *RUN[:2], *words, *RUN[3:])
    scarce.wait_for_step(2)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=240)
    for place in (RUN, [D, "europe-west4-b", RUN[2]]):
        process = scarce.ask("supervise", *place)
        assert process.returncode == 2
        assert f"{D} trains {' '.join(words)}" in process.stderr
        assert scarce.cloud.left() == {D}
    assert " training " in scarce.do("status", D, "europe-west4-b")


@pytest.mark.parametrize("script", ["launch/train.sh", "./launch/train.sh", "/a/launch/train.sh"])
@pytest.mark.parametrize("recipe", ["ro_t5x_base", "ro_t5x_base.gin", "gin/ro_t5x_base.gin"])
def test_a_run_may_be_spelled_otherwise_where_it_is_taken_up(script, recipe):
    """launch/train.sh takes all of these for one recipe."""
    slice = types.SimpleNamespace(name="ro", kind={}, call=str)
    supervision = tpu.Supervision(slice, script, [recipe, "--gin.BATCH_SIZE=8"], b"")
    train = lambda command: [Report(0, "unknown", 0, ""), Report(1, "training", 5, "", command)]
    supervision.refuse_other(train("launch/train.sh ro_t5x_base"))
    for other in ("launch/train.sh ro_t5x_large", "launch/ro_t5x_base.sh"):
        with pytest.raises(tpu.OtherRun, match=other):
            supervision.refuse_other(train(other))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_end_before_a_slice_is_granted_leaves_no_request(number, scarce):
    scarce.cloud.queue_ends(D, "WAITING_FOR_RESOURCES")
    with scarce.start("supervise", *RUN) as process:
        scarce.wait_for(lambda: len(scarce.cloud.calls("queued-resources create")), 4)
        process.send_signal(number)
        if number == signal.SIGHUP:  # the terminal is gone, and says so twice
            process.stdout.close()
            scarce.wait_for(lambda: len(scarce.cloud.calls("queued-resources delete")), 1)
            process.send_signal(number)
        else:
            assert "are left" not in process.communicate(timeout=240)[0]
        assert process.wait(timeout=240) in (120, 130)  # 120: Python's own, where none reads
    assert scarce.cloud.left() == set()


def test_ctrl_c_while_a_lost_slice_is_asked_for_again_leaves_no_request(scarce):
    scarce.hold_at(5)
    process = scarce.start("supervise", *RUN)
    scarce.wait_for_step(5)
    scarce.wait_for(lambda: scarce.cloud.left() == {D}, True)
    scarce.cloud.queue_ends(D, "WAITING_FOR_RESOURCES")
    scarce.cloud.preempt(D)
    scarce.wait_for(lambda: len(scarce.cloud.calls("queued-resources create")), 8)
    process.send_signal(2)
    assert "are left" not in process.communicate(timeout=240)[0]
    assert scarce.cloud.left() == set()


def test_ctrl_c_before_a_run_is_started_leaves_no_slice(scarce):
    scarce.cloud.change(slow={"tpu-vm ssh": 300})
    process = scarce.start("supervise", *RUN)
    scarce.wait_for(lambda: len(scarce.cloud.calls("tpu-vm ssh")), 1)
    os.killpg(process.pid, signal.SIGINT)
    assert "are left" not in process.communicate(timeout=240)[0]
    assert scarce.cloud.left() == set()


def test_a_second_ctrl_c_names_how_to_delete_what_may_be_left(scarce):
    scarce.cloud.queue_ends(D, "WAITING_FOR_RESOURCES")
    process = scarce.start("supervise", *RUN)
    scarce.wait_for(lambda: len(scarce.cloud.left()), 4)
    scarce.cloud.write("faults", {"queued-resources delete": 100})
    process.send_signal(2)
    scarce.wait_for(lambda: len(scarce.cloud.calls("queued-resources delete")), 4)
    process.send_signal(2)
    out, _ = process.communicate(timeout=240)
    for name in scarce.cloud.left():
        assert f"launch/tpu.py delete {name} " in out
    assert len(scarce.cloud.left()) == 4


def test_an_outage_when_a_slice_is_granted_does_not_give_it_back(scarce):
    scarce.cloud.write("faults", {"tpu-vm describe": 1})
    out = scarce.do("supervise", *RUN, STEPS="3")
    assert re.search(rf"{D} has finished: .* step 3/3", out)


class Request:
    """Stands in for a slice whose request is refused at first, and for its clock."""

    zone, numbers, now = ZONE, {"TPU_POLL_SECONDS": 60}, 0

    def __init__(self, refusals):
        self.clock, self.refusals, self.asked = Request, refusals, []

    @classmethod
    def time(cls):
        return cls.now

    @classmethod
    def sleep(cls, seconds):
        cls.now += seconds
        assert cls.now < 86_400

    def request(self, kind):
        self.asked.append(self.now)
        if len(self.asked) <= self.refusals:
            raise Failed("RESOURCE_EXHAUSTED")

    def queue_state(self):
        if len(self.asked) <= self.refusals:
            return "MISSING"
        return "ACTIVE" if self.refusals < 9 else "WAITING_FOR_RESOURCES"


def test_a_request_that_is_refused_is_made_again_while_another_waits():
    waiting, refused = Request(0), Request(2)
    waiting.queue_state = lambda: "WAITING_FOR_RESOURCES" if waiting.asked else "MISSING"
    offers = [pool.Offer(tpu, {"type": str(n)}, []) for n, tpu in enumerate((waiting, refused))]
    assert pool.acquire(offers) is offers[1]
    waits = [after - before for before, after in itertools.pairwise(refused.asked)]
    assert all(300 <= wait <= 3600 for wait in waits), "not at each look, which prints an error"


def test_nothing_is_asked_for_while_a_slice_is_there():
    missing, there = Request(9), Request(0)
    there.queue_state = lambda: "ACTIVE"
    offers = [pool.Offer(tpu, {"type": str(n)}, []) for n, tpu in enumerate((missing, there))]
    assert pool.acquire(offers) is offers[1]
    assert not missing.asked


def test_a_flex_start_slice_saves_before_its_end_and_another_follows(scarce):
    age = lambda number: 466 - 60 * number  # of new slices: a slow machine needs another one
    scarce.cloud.change(age=age(0))
    process = scarce.start("supervise", *RUN, "--flex", "600s", STEPS="100000")
    while scarce.step() < 1:
        assert process.poll() is None
        scarce.cloud.change(age=age(len(scarce.cloud.times("granted", D))))
        time.sleep(0.05)
    number = len(scarce.cloud.times("granted", D))
    scarce.wait_for(lambda: len(scarce.cloud.times("granted", D)), number + 1)
    created = scarce.cloud.times("granted", D)[number - 1] - age(number - 1)
    deleted = scarce.cloud.times("deleted", D)[number - 1]
    assert deleted < created + 600, "it is given back before it ends"
    process.send_signal(2)
    out, _ = process.communicate(timeout=240)
    assert re.search(r"saved .*Stopped by SIGTERM|worker 0 +saved", out), out
    flags = flags_of(scarce.cloud.calls("queued-resources create")[-1])
    assert flags["--provisioning-model"] == "flex-start"
    assert flags["--max-run-duration"] == "600s"
    assert "--spot" not in flags


@pytest.mark.parametrize("duration", ["", "1", "h", "24", "24h5", "-3h", "8d", "169h", "60s", "9m"])
def test_a_duration_that_is_none_is_refused(duration):
    with pytest.raises(Failed, match="--flex is "):
        pool.seconds_of(duration)


def test_durations():
    assert list(map(pool.seconds_of, ("10m", "24h", "1d12h", "7d"))) == [600, 86400, 129600, 604800]


PACKED = ["--gin.trainer.Trainer.num_microbatches=4", "--gin.A=2"]


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["launch/like_t5x.sh", "--gin.A=2"], PACKED),
        (["launch/train.sh", "like_t5x", "--gin.A=2"], ["like_t5x", *PACKED]),
    ],
)
def test_each_type_trains_with_the_flags_that_fit_it(words, flags, scarce):
    script = """#!/bin/sh
case "$*" in
  *libtpu*) ;;
  *preflight.files*) printf 'gin/like_t5x.gin\\t\\n' ;;
  *slice=v4-32*) echo --gin.trainer.Trainer.num_microbatches=4 ;;
  *) echo 'Error: like_t5x on v6e-16: needs 99.0 GiB of 31.25; name a larger type.' >&2; exit 2 ;;
esac
"""
    executable(scarce.clone / ".venv/bin/python", script)
    origin = scarce.folder / "origin/gin"
    origin.mkdir()
    (origin / "like_t5x.gin").write_text("A = 1")
    shutil.copy(origin.parent / "launch/like_t5x.sh", origin.parent / "launch/train.sh")
    scarce.commit("a recipe")
    subprocess.run(["git", "-C", scarce.clone, "pull", "-q"], check=True)
    scarce.hold_at(2)
    process = scarce.start("supervise", *RUN[:2], *words, *RUN[3:], STEPS="3")
    scarce.wait_for_step(2)
    assert (scarce.cloud.home(D, 0) / "flags").read_text().splitlines() == flags
    scarce.release()
    out = finish(process)
    assert "v6e-16 is left out: Error: like_t5x on v6e-16: needs 99.0 GiB" in out
    assert [call[4] for call in scarce.cloud.calls("queued-resources create")] == [C, D]


def test_without_a_compiler_no_type_is_left_out(monkeypatch, tmp_path):
    (tmp_path / "gin").mkdir()
    (tmp_path / "gin/mine.gin").touch()
    monkeypatch.setattr(commit, "ROOT", tmp_path)
    failing = "#!/bin/sh\necho 'Error: libtpu is not installed.' >&2\nexit 2\n"
    monkeypatch.setenv("PYTHON", str(executable(tmp_path / "python", failing)))
    assert pool.fitting_flags("launch/mine.sh", [], ["v4-8", "v6e-8"]) == {"v4-8": [], "v6e-8": []}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["supervise", *RUN[:3], "--flex", "24h"], "several zones"),
        (["supervise", "ro", "us-east5-a", RUN[2], "--flex", "24h"], "--flex needs --any"),
        (["supervise", *RUN, "--flex", "8d"], "set it to 7d"),
        (["status", "ro", ZONES], "several zones"),
        (["supervise", *RUN[:3], "--any", "x9-4"], "TPU_RUNTIME"),
        (["supervise", *RUN[:3], "--any", "v4-8,v6e-8,v4-8"], "v4-8 is named twice"),
        (["supervise", *RUN[:3], "--any", "v5e-8,v5litepod-8"], "v5litepod-8 is named twice"),
        (["supervise", "ro", "us-east5-a,us-east5-a", *RUN[2:]], "us-east5-a is named twice"),
        (["supervise", *RUN[:3], "--any", "v6e-8, v4-8"], "' v4-8'"),
        (["supervise", *RUN[:3], "--any", "v6e-8,"], "--any has ''"),
        (["supervise", "ro", "us-east5-z", *RUN[2:]], "Location us-east5-z is not found"),
        (["supervise", "ro", "us-east5-a", RUN[2], "--spot"], "--spot needs --any"),
        (["supervise", *RUN, "--flex", "24h", "--spot"], "leave out --spot"),
        (["supervise", *RUN, "--flex", "60s"], "set it to 10m"),
        (["supervise", "ro", "us-east5-a", RUN[2], "--any="], "--any has ''"),
        (["supervise", *RUN, "--flex="], "--flex is ''"),
    ],
)
def test_a_wrong_call_is_one_sentence(words, named, pair):
    pair.cloud.close("us-east5-z")
    assert named in sentence(pair.ask(*words, MODEL_DIR="gs://bucket/run"))
    assert pair.cloud.left() == set()
