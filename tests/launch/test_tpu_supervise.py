"""A supervised run finishes after failures; and the fake gcloud has the flags of the real one."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

from fakes.gcloud import ALPHA_FLAGS, FLAGS
from fakes.loopback import free_port
from fakes.shell import executable, sentence
from fakes.simulated_pod import ZONE, Pod, flags_of
from launch import slices, tpu
from launch.commit import Failed
from t5x.checkpointing import layout

# --- supervising a run


def test_a_failed_run_is_restarted_until_it_finishes(pair):
    """One worker fails; the other, which does not notice, is ended, and both resume."""
    pair.run_dir.mkdir()
    (pair.run_dir / "fail_1").write_text("6 1\n")
    pair.make()
    run = ["ro", ZONE, "launch/like_t5x.sh", "--gin.A=1"]
    output = pair.do("supervise", *run, STEPS="12")
    assert re.search("worker 1 +failed +status 1 .*wrong on worker 1; try 1 of 20 in 0 s.", output)
    assert output.count("launch/like_t5x.sh is started on") == 2
    assert re.search(r"ro has finished: .* step 12/12", output)
    assert pair.step() == 12
    assert (pair.cloud.home("ro", 1) / "flags").read_text() == "--gin.A=1\n"


@pytest.mark.parametrize("kind", ["--spot", pytest.param("--reserved", marks=pytest.mark.slow)])
def test_a_preempted_slice_is_created_again_with_its_settings_and_the_run_resumes(kind, pair):
    pair.do("create", "ro", ZONE, "v4-32", kind, "--queued", TPU_RUNTIME="special")
    pair.hold_at(5)
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh", STEPS="12")
    pair.wait_for_step(5)
    pair.cloud.preempt("ro")
    pair.release()
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    why = "(the slice ro is PREEMPTED|the first start has failed)"  # while it was still starting
    assert re.search(f"{why}; try 1 of 20", out), out
    assert re.search(r"ro has finished: .* step 12/12", out)
    first, second = map(flags_of, pair.cloud.calls("queued-resources create"))
    assert first == second
    assert kind in second
    assert second["--runtime-version"] == "special"


def test_a_preemptible_slice_is_created_again_as_a_spot_slice(pair):
    pair.make()
    about = pair.cloud.read("slices/ro/about")
    pair.cloud.write("slices/ro/about", about | {"preemptible": True, "state": "PREEMPTED"})
    pair.do("supervise", "ro", ZONE, "launch/like_t5x.sh", STEPS="3")
    assert "--spot" in flags_of(pair.cloud.calls("tpu-vm create")[-1])


def test_a_request_that_waits_keeps_its_place_in_the_queue(pair):
    pair.do("create", "ro", ZONE, "v4-32", "--queued")
    pair.hold_at(5)
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh", STEPS="12")
    pair.wait_for_step(5)
    pair.cloud.write("queue/ro", pair.cloud.read("queue/ro") | {"asked": 0})
    pair.cloud.tpu_vm_delete({}, "ro")
    pair.release()
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert re.search(r"ro has finished: .* step 12/12", out)
    assert len(pair.cloud.calls("queued-resources create")) == 1
    assert not pair.cloud.calls("queued-resources delete")


def test_a_run_without_progress_is_given_up(pair):
    trainer = "#!/usr/bin/env bash\nexit 1\n"
    (pair.folder / "origin/launch/like_t5x.sh").write_text(trainer)
    pair.commit("always fails")
    pair.make()
    process = pair.ask("supervise", "ro", ZONE, "launch/like_t5x.sh", TPU_RESTARTS="1")
    assert process.returncode == 2
    assert "try 1 of 1" in process.stdout
    assert (
        "ro made no new step in 1 restarts (TPU_RESTARTS); the last time: worker" in process.stderr
    )


def test_the_wait_before_a_new_start_doubles():
    waits = [tpu.backoff(tries, 30) for tries in (1, 2, 3, 5, 6, 7, 20)]
    assert waits == [30, 60, 120, 480, 900, 900, 900]


def test_supervision_ends_when_the_user_stops_the_run_or_the_trainer_rejects_it(pair):
    pair.make()
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh")
    pair.wait_for_step(5)
    pair.do("stop", "ro", ZONE)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, "ro was stopped by tpu.py stop at step" in out) == (0, True), err

    (pair.run_dir / "fail_0").write_text("0 2\n")
    (pair.run_dir / "fail_1").write_text("0 1\n")
    process = pair.ask("supervise", "ro", ZONE, "launch/like_t5x.sh")
    assert process.returncode == 2
    assert re.search("rejects its configuration: worker 0 +refused +status 2 ", process.stderr)


def test_a_run_stopped_before_it_is_started_again_stays_so(pair):
    pair.run_dir.mkdir()
    (pair.run_dir / "fail_1").write_text("5 1\n")
    pair.make()
    run = ["supervise", "ro", ZONE, "launch/like_t5x.sh"]
    process = pair.start(*run, TPU_BACKOFF_SECONDS="10")
    while "try 1 of 20" not in (line := process.stdout.readline()):
        assert line, process.communicate()
    for worker in (0, 1):
        (pair.cloud.home("ro", worker) / "origin/runs/.pod/stop").touch()  # as tpu.py stop does
    pair.do("stop", "ro", ZONE)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, "ro was stopped by tpu.py stop at step" in out) == (0, True), err
    assert "is started on" not in out


def test_an_earlier_run_says_nothing_about_one_that_could_not_start(pair):
    pair.make()
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh")
    pair.do("stop", "ro", ZONE)
    (pair.cloud.home("ro", 1) / "origin/launch/like_t5x.sh").write_text("changed here")
    (pair.folder / "origin/launch/like_t5x.sh").write_text("changed there")
    pair.commit("other")
    process = pair.ask("supervise", "ro", ZONE, "launch/like_t5x.sh", TPU_RESTARTS="1")
    assert process.returncode == 2, process.stdout
    assert (
        "made no new step in 1 restarts (TPU_RESTARTS); the last time: the first" in process.stderr
    )


def test_a_relative_folder_in_a_flag_is_refused_too(pair):
    pair.do("create", "ro", ZONE, "v4-32")
    for flag in ("'run'", "run", ""):
        run = ["ro", ZONE, "launch/like_t5x.sh", f"--gin.MODEL_DIR={flag}"]
        refusal = sentence(pair.ask("run", *run, MODEL_DIR="gs://bucket/run"))
        assert f"MODEL_DIR is '{flag.strip(chr(39))}'" in refusal
    assert refusal == sentence(pair.ask("supervise", *run, MODEL_DIR="gs://bucket/run"))


def test_an_absolute_folder_gives_a_warning(pair):
    warning = "warning: MODEL_DIR is {}: a folder that is not mounted from elsewhere is deleted "
    pair.do("create", "ro", ZONE, "v4-32")
    run = ["ro", ZONE, "launch/like_t5x.sh"]
    for model_dir, flags, expected in (
        ("/a/b", [], "/a/b"),
        ("run", ['--gin.MODEL_DIR="/tmp/it\'s"'], "/tmp/it's"),
        ("gs://bucket/run", ["--gin.MODEL_DIR='/tmp/x'"], "/tmp/x"),
        ("/a/b", ["--gin.MODEL_DIR='/tmp/x'", "--gin.MODEL_DIR='gs://bucket/run'"], None),
        ("/a/b", ["--gin.MODEL_DIR=%OTHER"], None),
    ):
        process = pair.ask("run", *run, *flags, MODEL_DIR=model_dir)
        assert "there is no clone in ~/origin" in process.stderr  # it was not refused before
        assert process.stderr.count("warning: ") == (expected is not None)
        if expected:
            assert process.stderr.startswith(f"{warning.format(expected)}with the slice.\n")


def test_workers_whose_set_up_was_not_completed_are_set_up(pair):
    pair.make()
    for worker in (0, 1):
        shutil.rmtree(pair.cloud.home("ro", worker) / "origin/.venv")
    out = pair.do("supervise", "ro", ZONE, "launch/like_t5x.sh", STEPS="3")
    assert re.search(r"ro has finished: .* step 3/3", out)


@pytest.mark.parametrize("folder", ["", "runs/mine", "/data/run"])
def test_one_worker_may_have_a_folder_of_its_own_and_is_warned(folder, tmp_path):
    with Pod(tmp_path, workers=1) as pod:
        pod.do("create", "ro", ZONE, "v4-8")
        process = pod.ask("run", "ro", ZONE, "launch/like_t5x.sh", MODEL_DIR=folder)
    assert f"warning: MODEL_DIR is {folder or 'not set'}: " in process.stderr
    assert "there is no clone in ~/origin" in process.stderr  # it was not refused before


def test_supervision_survives_the_end_of_the_program_that_reads_its_output(pair):
    pair.run_dir.mkdir()
    (pair.run_dir / "fail_1").write_text("4 1\n")
    pair.make()
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh", STEPS="8")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=240) in (0, 120), process.stderr.read()  # 120: Python's own
    assert pair.step() == 8


def test_supervision_survives_an_outage_of_the_cloud(pair):
    pair.make()
    pair.hold_at(5)
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh", STEPS="12")
    pair.wait_for_step(5)
    pair.cloud.write("faults", {"tpu-vm describe": 2, "tpu-vm ssh": 3})
    output = ""
    while "is currently unavailable" not in output:
        output += (line := process.stdout.readline())
        assert line, process.communicate()
    pair.release()
    out, err = process.communicate(timeout=240)
    out = output + out
    assert process.returncode == 0, err
    assert "gcloud cannot describe the tpu-vm ro" in out
    assert "The service is currently unavailable" in out
    assert re.search(r"ro has finished: .* step 12/12", out)
    assert out.count("is started on") == 1


def test_a_slice_that_is_unreachable_from_here_is_not_created_again(pair):
    pair.make()
    pair.hold_at(5)
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh", STEPS="12")
    silent = [pair.cloud.home("ro", worker) / ".silent" for worker in (0, 1)]
    for path in silent:
        path.touch()
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh", STEPS="12")
    lines = [process.stdout.readline() for _ in range(2)]
    assert "no worker of ro answers: its network, or yours?" in lines[1]
    for path in silent:
        path.unlink()
    pair.release()
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert not pair.cloud.calls("tpu-vm delete")
    assert "ro has finished: " in out


def test_a_slice_with_one_silent_worker_is_not_created_again_while_the_others_train(pair):
    pair.make()
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh")
    pair.cloud.silence("ro", 1)
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh")
    lines = [process.stdout.readline() for _ in range(2)]
    assert "worker 1   unknown   does not answer" in lines[1]
    assert "try 1" not in lines[1]
    (pair.cloud.home("ro", 1) / ".silent").unlink()
    pair.do("stop", "ro", ZONE)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, "ro was stopped by tpu.py stop" in out) == (0, True), err
    assert not pair.cloud.calls("tpu-vm delete")


def test_a_finished_run_is_over_although_another_worker_is_silent(pair):
    pair.make()
    pair.hold_at(5)
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh", STEPS="12")
    asked = len(pair.cloud.calls("tpu-vm ssh"))
    process = pair.start("supervise", "ro", ZONE, "launch/like_t5x.sh", STEPS="12")
    pair.wait_for(lambda: len(pair.cloud.calls("tpu-vm ssh")), asked + 3)  # it has seen both train
    pair.cloud.silence("ro", 1)
    pair.release()
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert re.search(r"ro has finished: .* step 12/12", out)
    assert f"launch/tpu.py delete ro {ZONE}" in out, "the slice costs money"
    assert not pair.cloud.calls("tpu-vm delete")


def test_a_gcloud_that_cannot_be_started_leaves_the_state_unknown(monkeypatch, tmp_path):
    ro = slices.Slice("ro", ZONE, {"TPU_REPO": "https://host/user/repo"})
    ro.workers = 2
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [report.state for report in ro.reports()] == ["unknown", "unknown"]
    for action in (ro.look, lambda: ro.change("tpu-vm", "delete", "ro")):
        with pytest.raises(Failed):
            action()


# --- what gcloud says

DISABLED = """SSH: Attempting to connect to worker 0...
ERROR: (gcloud.compute.tpus.tpu-vm.describe) PERMISSION_DENIED: Cloud TPU API has not been used in \
project 12 before or it is disabled. Enable it by visiting https://console.developers.google.com/\
apis/api/tpu.googleapis.com/overview?project=12 then retry.
- '@type': type.googleapis.com/google.rpc.Help
  links:
  - description: Google developers console API activation
"""


def test_an_error_of_gcloud_is_shown_whole(capsys):
    done = subprocess.CompletedProcess([], 1, "", DISABLED)
    slices.say(slices.why(done))
    assert capsys.readouterr().out == DISABLED.partition("\n")[2]


# --- the real trainer


@pytest.mark.slow
def test_the_tiny_recipe_trains_on_a_pod_stops_and_resumes(tmp_path):
    """Two workers run t5x.train, controlled only by launch/tpu.py."""
    environment = {
        "PYTHON": sys.executable,
        "COORDINATOR": f"127.0.0.1:{free_port()}",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
    }
    packages = ("common", "t5x", "tasks", "gin", "data")
    pod = Pod(tmp_path, workers=2, packages=packages, worker_environment=environment)
    which = "--process_count=2 --process_index=$TPU_WORKER_ID"
    executable(
        tmp_path / "origin/launch/pod_tiny.sh",
        "#!/usr/bin/env bash\n"
        f"exec bash launch/ro_t5x_tiny.sh --coordinator_address=$COORDINATOR {which} $@\n",
    )
    pod.commit("on two machines")
    subprocess.run(["git", "-C", pod.clone, "pull", "-q"], check=True)
    run = ["run", "ro", ZONE, "launch/pod_tiny.sh", "--gin.EVAL_PERIOD=5", "--gin.EVAL_STEPS=1"]

    def status_with(text, count):
        end = time.monotonic() + 400
        while len(re.findall(text, output := pod.ask("status", "ro", ZONE).stdout)) < count:
            assert "failed" not in output, output + pod.do("logs", "ro", ZONE, "1")
            assert time.monotonic() < end, output
            time.sleep(1)
        return output

    with pod:
        pod.make()
        pod.do(*run, "--gin.TRAIN_STEPS=100000")
        status_with(r"training  .* step \d+/100,000  .*loss \d\.\d+", 1)
        output = pod.do("stop", "ro", ZONE)
        assert output.count("stopped") == 2, output
        stopped_at = layout.latest_step(str(pod.run_dir))
        output = pod.do("logs", "ro", ZONE)
        assert f"at step {stopped_at:,}; the same command " in output
        pod.do(*run, f"--gin.TRAIN_STEPS={stopped_at + 10}")
        status_with("finished", 2)
        assert f" from step {stopped_at:,}." in pod.do("logs", "ro", ZONE)
        assert layout.latest_step(str(pod.run_dir)) == stopped_at + 10


# --- the fake itself


def test_the_fake_accepts_only_flags_that_gcloud_has():
    gcloud = shutil.which("gcloud")
    tree = gcloud and os.path.join(
        os.path.dirname(os.path.realpath(gcloud)), "../data/cli/gcloud_completions.py"
    )
    if not tree or not os.path.exists(tree):
        pytest.skip("gcloud is not installed")
    completions = {}
    exec(pathlib.Path(tree).read_text(), completions)
    root = completions["STATIC_COMPLETION_CLI_TREE"]
    alpha = {f"alpha {command}": flags for command, flags in ALPHA_FLAGS.items()}
    for command, flags in (FLAGS | alpha).items():
        node = root
        group = ["alpha"] if command.startswith("alpha ") else []
        for word in [*group, "compute", "tpus", *command.removeprefix("alpha ").split()]:
            node = node["commands"][word]
        wide = {**root["flags"], **node["flags"], "--version": "value"}
        for flag in flags.split():
            assert (wide[f"--{flag.rstrip('!')}"] == "bool") == flag.endswith("!"), (command, flag)
