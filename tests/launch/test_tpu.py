"""The pod scripts run for real against a fake gcloud, whose workers are local processes."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time

import pytest

from fakes.gcloud import Cloud
from fakes.shell import LAUNCH, executable, sentence
from fakes.simulated_pod import ZONE, Pod, flags_of


@pytest.fixture
def pod(tmp_path):
    with Pod(tmp_path) as pod:
        yield pod


@pytest.fixture
def pair(tmp_path):
    """A pod of two workers."""
    with Pod(tmp_path, workers=2) as pod:
        yield pod


# --- creating and deleting


def test_a_slice_is_created_with_the_runtime_of_its_generation(pair):
    runtimes = {
        "v2-8": "v2-alpha",
        "v3-32": "v2-alpha",
        "v4-8": "v2-alpha-tpuv4",
        "v4-32": "v2-alpha-tpuv4-pod",
        "v5e-16": "v2-alpha-tpuv5-lite",
        "v5litepod-8": "v2-alpha-tpuv5-lite",
        "v5p-8": "v2-alpha-tpuv5",
        "v6e-8": "v2-alpha-tpuv6e",
    }
    for kind, runtime in runtimes.items():
        said = pair.do("create", f"my-{kind}", kind, ZONE)
        flags = flags_of(pair.cloud.calls("tpu-vm create")[-1])
        kind = kind.replace("v5e", "v5litepod")
        assert flags == {"--zone": ZONE, "--accelerator-type": kind, "--version": runtime}
        assert f"is READY: {kind}, 2 workers, on-demand" in said


def test_settings_come_from_a_file_and_the_environment_wins(pair):
    settings = "TPU_SPOT=1\nTPU_NETWORK=mine\nTPU_SUBNETWORK=ours\nTPU_INTERNAL_IPS=1\n"
    settings += "TPU_RUNTIME=tpu-ubuntu2204-base\nTPU_SERVICE_ACCOUNT=me@here\nTPU_PROJECT=p\n"
    (pair.clone / "launch/env").write_text(settings)
    pair.do("create", "v4-32", TPU_NETWORK="theirs", TPU_NAME="ro", TPU_ZONE=ZONE)
    assert pair.cloud.calls("tpu-vm create ro")
    flags = flags_of(pair.cloud.calls("tpu-vm create")[-1])
    assert flags == {
        "--zone": ZONE,
        "--accelerator-type": "v4-32",
        "--version": "tpu-ubuntu2204-base",
        "--spot": "",
        "--network": "theirs",
        "--subnetwork": "ours",
        "--internal-ips": "",
        "--service-account": "me@here",
        "--project": "p",
    }


def test_every_setting_of_the_example_is_one_that_a_script_reads():
    names = re.findall(r"^#(\w+)=", (LAUNCH / "env.example").read_text(), re.MULTILINE)
    scripts = "".join(path.read_text() for path in LAUNCH.glob("tpu*.sh"))
    assert names
    assert all(
        f"${{{name}" in scripts or f"${name}" in scripts for name in names if name[:3] == "TPU"
    )
    read = set(re.findall(r"\$\{(TPU_[A-Z_]+)", scripts)) - {"TPU_REPO"}
    assert read <= set(names)


def test_creation_waits_for_a_queued_slice_and_deletion_includes_its_request(pair):
    said = pair.do("create", "ro", "v4-32", ZONE, "--queued", "--spot", TPU_QUEUE_FOR="6h")
    states = re.findall(r"the request for ro is (\w+)", said)
    assert states == ["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    assert "ro is READY: v4-32, 2 workers, spot" in said
    flags = flags_of(pair.cloud.calls("queued-resources create")[-1])
    assert (flags["--node-id"], flags["--valid-until-duration"]) == ("ro", "6h")
    assert flags["--runtime-version"] == "v2-alpha-tpuv4-pod"
    pair.do("delete", "ro", ZONE, "--yes")
    assert pair.cloud.read("queue/ro") is None
    assert pair.cloud.read("slices/ro/about") is None


def test_a_request_that_fails_is_a_sentence(pair):
    pair.cloud.write("settings", pair.cloud.read("settings") | {"queue_ends": "FAILED"})
    process = pair.ask("create", "ro", "v4-32", ZONE, "--queued")
    assert "the request for ro is FAILED and provides no slice" in sentence(process)


def test_a_second_start_waits_for_the_same_request_also_while_gcloud_fails(pair):
    settings = pair.cloud.read("settings")
    pair.cloud.write("settings", settings | {"queue_ends": "WAITING_FOR_RESOURCES"})
    create = ["create", "ro", "v4-32", ZONE, "--queued"]
    first = pair.start(*create)
    assert "the request for ro is WAITING_FOR_RESOURCES" in first.stdout.readline()
    os.killpg(first.pid, signal.SIGINT)
    first.communicate(timeout=240)

    second = pair.start(*create)
    assert "A request for ro exists already" in second.stdout.readline()
    pair.cloud.write("faults", {"queued-resources describe": 2})
    end = time.monotonic() + 240
    while pair.cloud.read("faults")["queued-resources describe"]:
        assert second.poll() is None, second.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    pair.cloud.write("settings", settings)
    out, err = second.communicate(timeout=240)
    assert (second.returncode, "ro is READY" in out) == (0, True), err
    assert err.count("gcloud cannot describe the queued ro") == 2
    assert len(pair.cloud.calls("queued-resources create")) == 1


def test_ctrl_c_ends_a_script_while_gcloud_runs(pair):
    settings = pair.cloud.read("settings") | {"queue_ends": "WAITING_FOR_RESOURCES"}
    pair.cloud.write("settings", settings | {"slow": {"queued-resources describe": 30}})
    process = pair.start("create", "ro", "v4-32", ZONE, "--queued")
    end = time.monotonic() + 240
    while not pair.cloud.calls("queued-resources describe"):
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_deleting_asks_first(pair):
    pair.do("create", "ro", "v4-32", ZONE)
    for typed in ("", "\n", "n\n"):
        process = pair.ask("delete", "ro", ZONE, typed=typed)
        assert process.returncode == 2
        assert process.stderr.endswith("tpu_delete.sh: nothing was deleted.\n")
    assert not pair.cloud.calls("tpu-vm delete")
    assert pair.ask("delete", "ro", ZONE, typed="y\n").returncode == 0
    assert pair.do("delete", "ro", ZONE, "--yes") == f"There is no slice ro in {ZONE}.\n"


# --- one sentence for what is wrong


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (["create", "ro", "v4-32"], "name the slice, its type and its zone"),
        (["create", "ro", "v4", ZONE], "name the slice, its type and its zone"),
        (["create", "ro", "v9-8", ZONE], "the runtime of v9-8 is not known: set TPU_RUNTIME"),
        (["create", "ro", "v4-8", ZONE, "--sport"], "'--sport' is not understood"),
        (["create", "ro", "v4-8", ZONE, "stray"], "name the slice, its type and its zone"),
        (["status"], "name the slice and its zone: bash launch/tpu_status.sh NAME ZONE, or set "),
        (["status", "ro", "nowhere"], "name the slice and its zone"),
        (
            ["status", "ro", ZONE],
            "the slice ro does not exist in us-central2-b: bash launch/tpu_c",
        ),
        *(
            ([script, "ro", ZONE, "stray"], "'stray' is not understood: bash launch/tpu_")
            for script in ("setup", "status", "logs", "stop", "delete")
        ),
        (["run", "ro", ZONE], "'' is not a launch script of this clone"),
        (
            ["run", "ro", ZONE, "launch/ro_t5x_huge.sh"],
            "'launch/ro_t5x_huge.sh' is not a launch ",
        ),
        (["run", "ro", ZONE, "launch/train.sh", "like", "stray"], "'stray' is not a flag"),
        (["run", "ro", ZONE, "launch/like_t5x.sh", "stray"], "'stray' is not a flag"),
        (
            ["run", "ro", ZONE, "launch/train.sh", "--gin.A=1"],
            "'--gin.A=1' is not a recipe of gin/",
        ),
        (["run", "ro", ZONE, "launch/like_t5x.sh", "--supervise"], "--supervise comes first: "),
        (
            ["supervise", "ro", ZONE, "launch/like_t5x.sh"],
            "the slice ro does not exist in us-central2-b, ",
        ),
    ],
)
def test_a_wrong_call_is_one_sentence(call, expected, tmp_path):
    clone = tmp_path / "clone"
    shutil.copytree(LAUNCH, clone / "launch", ignore=shutil.ignore_patterns("env"))
    (clone / "launch/like_t5x.sh").touch()
    (clone / "gin").mkdir()
    (clone / "gin/like.gin").touch()
    with Cloud(tmp_path / "cloud") as cloud:
        env = {"HOME": str(tmp_path), "TPU_REPO": "https://host/user/repo"} | cloud.environment
        script, *words = call
        command = ["bash", str(clone / f"launch/tpu_{script}.sh"), *words]
        process = subprocess.run(command, env=env, capture_output=True, text=True)
    assert sentence(process).startswith(f"tpu_{script}.sh: ")
    assert expected in process.stderr


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        ("train.sh", ["ro_t5x_tiny", "stray"], "'stray' is not a flag: flags begin with --"),
        ("ro_t5x_tiny.sh", ["--dry_run", "stray"], "'stray' is not a flag"),
        ("ro_t5x_tiny.sh", ["--report", "stray"], "'stray' is not a flag"),
        ("ro_t5x_tiny.sh", ["--gin.A=1", "--gin_file", "a.gin", "stray"], "'stray' is not a flag"),
        (
            "setup.sh",
            ["stray"],
            "'stray' is not understood: bash launch/setup.sh takes --cpu, --tpu or --cuda, --cache",
        ),
        ("lock.sh", ["stray"], "'stray' is not understood: bash launch/lock.sh takes --upgrade"),
    ],
)
def test_a_stray_argument_of_a_launch_script_is_one_sentence(script, words, expected):
    command = ["bash", str(LAUNCH / script), *words]
    env = {"PATH": os.environ["PATH"], "PYTHON": "true"}
    process = subprocess.run(command, env=env, capture_output=True, text=True)
    assert expected in sentence(process)


def test_without_gcloud_a_script_links_its_installation(tmp_path):
    for tool in ("bash", "dirname", "basename", "mktemp", "rm"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    command = [shutil.which("bash"), str(LAUNCH / "tpu_status.sh"), "ro", ZONE]
    env = {"PATH": str(tmp_path)}
    process = subprocess.run(command, env=env, capture_output=True, text=True)
    assert "gcloud is not installed" in sentence(process)


# --- setting up


def test_set_up_is_the_same_on_every_worker_and_can_be_repeated(pod):
    pod.do("create", "ro", "v4-32", ZONE)
    said = pod.do("setup", "ro", ZONE, HF_TOKEN="hf_secret")
    again = pod.do("setup", "ro", ZONE, HF_TOKEN="hf_other")
    for worker in range(4):
        assert f"worker {worker}  {pod.head()}  " in said
        assert f"worker {worker}  {pod.head()}  " in again
        home = pod.cloud.home("ro", worker)
        assert (home / "origin/.venv/installed").read_text().startswith("--tpu\n")
        token = home / ".cache/huggingface/token"
        assert token.read_text() == "hf_other\n"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
    installs = (pod.folder / "calls").read_text().count("uv pip install")
    assert installs == 4, "the second set-up has nothing to install"
    assert "hf_" not in json.dumps(pod.cloud.calls()), "a token is in a command line"


def test_missing_tools_of_a_worker_are_installed(pair):
    """Without tmux, git and Python: fake apt-get and uv are called."""
    tools = pair.folder / "tools"
    for tool in (
        "bash",
        "env",
        "cat",
        "mkdir",
        "touch",
        "chmod",
        "dirname",
        "cp",
        "rm",
        "grep",
        "ln",
        "sort",
        "sed",
    ):
        executable(tools / tool, f'#!/bin/sh\nexec {shutil.which(tool)} "$@"\n')
    note = f'echo "$(basename $0) $*" >> {pair.folder}/asked\n'
    (tools / "basename").symlink_to(shutil.which("basename"))
    executable(tools / "sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    give = f"ln -sf {shutil.which('git')} {shutil.which('tmux')} {tools}\n"
    executable(tools / "apt-get", f"#!/bin/sh\n{note}case $* in *install*) {give};; esac\n")
    shutil.copytree(pair.folder / "pythons", pair.folder / "managed")
    (pair.folder / "managed/uv").rename(pair.folder / "uv")
    managed = f"{pair.folder}/managed/python3.13"
    found = f"*find*3.13*) echo {managed};; pip*) {pair.folder}/uv $*;;"
    uv = f"#!/bin/sh\n{note}case $* in {found} esac\n"
    executable(tools / "python3", f"#!/bin/sh\n{note}")
    executable(tools / "uv", uv)
    pair.worker_settings(PATH=str(tools))
    pair.make()
    asked = (pair.folder / "asked").read_text()
    assert re.search(r"^apt-get .* install git tmux$", asked, re.MULTILINE)
    assert "python3 -m pip install --quiet --user uv" in asked
    assert "uv python install --quiet 3.13" in asked
    assert (pair.cloud.home("ro", 0) / "origin/.venv/installed").exists()


def test_a_set_up_that_fails_names_the_worker_and_why(pair):
    pair.do("create", "ro", "v4-32", ZONE)
    (pair.cloud.home("ro", 1) / "origin").write_text("in the way")
    process = pair.ask("setup", "ro", ZONE)
    assert process.returncode == 2
    lines = process.stderr.splitlines()
    assert lines[0].startswith("worker 1: fatal: destination path 'origin' already exists")
    assert lines[1:] == ["tpu_setup.sh: the set-up has failed on worker 1 of 2."]


# --- running


def test_a_run_starts_everywhere_saves_when_stopped_and_resumes(pod):
    pod.make()
    flags = ["--gin.TRAIN_STEPS=7", "--gin.NAME='a \"b\" $c'"]
    said = pod.do("run", "ro", ZONE, "launch/like_t5x.sh", *flags)
    assert "is started on 4 workers of ro at commit " in said
    pod.wait_for_step(3)
    for worker in range(4):
        assert (pod.cloud.home("ro", worker) / "flags").read_text().splitlines() == flags

    again = pod.ask("run", "ro", ZONE, "launch/like_t5x.sh")
    assert again.returncode == 2
    warning, first, *_, last = again.stderr.splitlines()
    assert warning.startswith(f"warning: MODEL_DIR is {pod.run_dir}: unless that folder is mounted")
    assert first.startswith("worker 0: launch/like_t5x.sh --gin.TRAIN_STEPS=7")
    assert "is running since " in first
    assert last == "tpu_run.sh: nothing was started: a run cannot start on worker 0, 1, 2, 3 of 4."

    head, *lines = pod.do("status", "ro", ZONE).splitlines()
    assert head == f"ro in {ZONE} is READY: v4-32, 4 workers, on-demand"
    expected = r"training  step \d+/100000  loss 4.614  [\d.]+ steps/s  last output \d+s ago"
    for worker, line in enumerate(lines):
        assert re.fullmatch(rf"worker {worker}   {expected}", line)

    assert "step 3/100000" in pod.do("logs", "ro", ZONE)
    assert pod.do("logs", "ro", ZONE, "2") == "", "only worker 0 shows progress"

    said = pod.do("stop", "ro", ZONE)
    assert re.fullmatch(r"(worker \d  stopped  step \d+/100000 .* ended \d+s ago\n){4}", said)
    stopped_at = pod.step()
    (pod.run_dir / "log_0.txt").unlink()  # its log in a bucket
    assert f"stopped   step {stopped_at}/100000" in pod.do("status", "ro", ZONE)

    pod.commit("second")
    said = pod.do("run", "ro", ZONE, "launch/like_t5x.sh", STEPS=str(stopped_at + 5))
    assert f"at commit {pod.head()}" in said, "it pulls first"
    pod.wait_for_step(stopped_at + 5)
    end = time.monotonic() + 240
    while "training" in (said := pod.do("status", "ro", ZONE)):
        assert time.monotonic() < end
    assert said.count("finished") == 4
    assert f"step {stopped_at + 5}/{stopped_at + 5}" in said


def test_logs_are_followed_until_one_has_seen_enough(pair):
    pair.make()
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh")
    process = pair.start("logs", "-f", TPU_NAME="ro", TPU_ZONE=ZONE)
    try:
        seen = [process.stdout.readline() for _ in range(40)]
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=240)
    assert "step 25/100000" in "".join(seen)


def test_status_shows_a_worker_that_failed_or_is_silent(pair):
    pair.run_dir.mkdir()
    (pair.run_dir / "fail_1").write_text("2 1\n")
    pair.make()
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh")
    end = time.monotonic() + 240
    while (process := pair.ask("status", "ro", ZONE)).returncode == 0:
        assert time.monotonic() < end
    assert re.search(
        r"worker 1 +failed +status 1 \d+s ago  Error: something is wrong on worker 1",
        process.stdout,
    )
    assert re.search(r"worker 0 +training ", process.stdout)
    said = pair.do("stop", "ro", ZONE)
    assert said.count("stopped") == 2, "a run that has failed can be stopped too"
    pair.cloud.silence("ro", 0)
    said = pair.ask("status", "ro", ZONE).stdout
    assert re.search(r"worker 0 +unknown +does not answer: ERROR: .* return code \[255\]", said)


def test_a_run_that_hangs_can_be_ended_at_once(pair):
    trainer = "#!/usr/bin/env bash\ntrap '' TERM\nwhile true; do sleep 0.1; done\n"
    (pair.folder / "origin/launch/like_t5x.sh").write_text(trainer)
    pair.commit("hangs")
    pair.make()
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh")
    process = pair.ask("stop", "ro", ZONE, TPU_STOP_SECONDS="1")
    assert process.returncode == 2
    assert "worker 1: the run is still saving, or hangs." in process.stderr
    pair.do("stop", "ro", ZONE, "--kill")
    assert pair.do("status", "ro", ZONE).count("stopped") == 2


def refusal(pod, **settings):
    """Return the errors of a tpu_run.sh that fails."""
    process = pod.ask("run", "ro", ZONE, "launch/like_t5x.sh", **settings)
    assert process.returncode == 2, process
    return process.stderr


def test_a_run_that_cannot_start_everywhere_starts_nowhere(pair):
    pair.do("create", "ro", "v4-32", ZONE)
    said = refusal(pair)
    assert "worker 1: there is no clone in ~/origin: run bash launch/tpu_setup.sh ro" in said
    pair.do("setup", "ro", ZONE)

    for folder in ("", "run"):
        assert "2 workers need one folder that all of them can write to" in refusal(
            pair, MODEL_DIR=folder
        )

    clone = pair.cloud.home("ro", 1) / "origin"
    (clone / "launch/like_t5x.sh").write_text("changed here")
    (pair.folder / "origin/launch/like_t5x.sh").write_text("changed there")
    pair.commit("other")
    assert "worker 1: git pull failed (" in refusal(pair)
    subprocess.run(["git", "-C", clone, "checkout", "-q", "."], check=True)
    own = ["git", "-C", clone, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q"]
    subprocess.run(["git", "-C", clone, "pull", "-q"], check=True)
    subprocess.run([*own, "--allow-empty", "-m", "of its own"], check=True)
    assert re.search(
        r"different commits \(\w{12} worker 0, \w{12} worker 1\): run bash", refusal(pair)
    )

    pair.cloud.silence("ro", 1)
    assert "worker 1: ERROR: " in refusal(pair)
    assert not list(pair.cloud.folder.rglob("started"))


def test_a_worker_without_tmux_must_be_set_up_first(pair):
    pair.make()
    tools = pair.folder / "few"
    for tool in ("bash", "git", "dirname", "basename"):
        executable(tools / tool, f'#!/bin/sh\nexec {shutil.which(tool)} "$@"\n')
    pair.worker_settings(PATH=str(tools))
    assert "worker 0: tmux is missing: run bash launch/tpu_setup.sh first." in refusal(pair)
