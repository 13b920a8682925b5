"""launch/tpu.py runs for real against a fake gcloud, whose workers are local processes."""

import base64
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile

import pytest

from fakes import loopback
from fakes.full_disk import full_disk
from fakes.shell import LAUNCH, executable, sentence
from fakes.simulated_pod import ZONE, Pod, flags_of

AGO = r"\d+[ms] ago"


@pytest.fixture
def pod(tmp_path):
    with Pod(tmp_path) as pod:
        yield pod


# --- creating and deleting


def test_a_slice_is_created_with_the_runtime_of_its_generation(pair):
    runtimes = {
        "v4-8": "v2-alpha-tpuv4",
        "v4-32": "v2-alpha-tpuv4-pod",
        "v5e-16": "v2-alpha-tpuv5-lite",
    }
    for kind, runtime in runtimes.items():
        output = pair.do("create", f"my-{kind}", ZONE, kind)
        flags = flags_of(pair.cloud.calls("tpu-vm create")[-1])
        kind = kind.replace("v5e", "v5litepod")
        assert flags == {"--zone": ZONE, "--accelerator-type": kind, "--version": runtime}
        assert f"is READY: {kind}, 2 workers" in output


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


def test_a_file_of_settings_that_cannot_be_read_is_a_sentence(pair):
    for settings in (b"TPU_NETWORK=my network\n", b"TPU_NETWORK='mine\n", b"TPU_NETWORK=a\r\n"):
        (pair.clone / "launch/env").write_bytes(settings)
        assert "launch/env" in sentence(pair.ask("status", "ro", ZONE))


def test_what_the_file_of_settings_prints_is_shown(pair):
    (pair.clone / "launch/env").write_text("echo careful >&2\n")
    assert "careful" in pair.ask("status", "ro", ZONE).stderr


def test_a_switch_that_is_0_is_off(pair):
    (pair.clone / "launch/env").write_text("TPU_SPOT=1\nTPU_QUEUED=1\nTPU_INTERNAL_IPS=1\n")
    off = {"TPU_SPOT": "0", "TPU_QUEUED": "0", "TPU_RESERVED": "0", "TPU_INTERNAL_IPS": "0"}
    pair.do("create", "ro", ZONE, "v4-32", **off)
    flags = flags_of(pair.cloud.calls("tpu-vm create")[-1])
    assert flags.keys() == {"--zone", "--accelerator-type", "--version"}


def test_the_example_has_every_setting_and_no_other():
    listed = re.findall(r"^#(TPU_\w+)=", (LAUNCH / "env.example").read_text(), re.MULTILINE)
    driver = "".join((LAUNCH / f"{name}.py").read_text() for name in ("tpu", "slices"))
    read = {*re.findall(r"TPU_[A-Z_]+[A-Z]", driver)} - {"TPU_SAVE_AT"}
    flags = ("SPOT", "QUEUED", "RESERVED", "NETWORK", "SUBNETWORK", "SERVICE_ACCOUNT")
    assert {*listed} == read | {f"TPU_{flag}" for flag in flags}


def test_creation_waits_for_a_queued_slice_and_deletion_includes_its_request(pair):
    output = pair.do("create", "ro", ZONE, "v4-32", "--queued", "--spot", TPU_QUEUE_FOR="6h")
    states = re.findall(r"the request for ro is (\w+)", output)
    assert states == ["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    assert "is READY: v4-32, 2 workers, spot" in output
    flags = flags_of(pair.cloud.calls("queued-resources create")[-1])
    assert (flags["--node-id"], flags["--valid-until-duration"]) == ("ro", "6h")
    assert flags["--runtime-version"] == "v2-alpha-tpuv4-pod"
    pair.do("delete", "ro", ZONE, "--yes")
    assert pair.cloud.read("queue/ro") is None
    assert pair.cloud.read("slices/ro/about") is None


def test_a_request_that_fails_is_a_sentence(pair):
    pair.cloud.queue_ends("ro", "FAILED")
    process = pair.ask("create", "ro", ZONE, "v4-32", "--queued")
    refusal = sentence(process)
    assert "the request for ro is FAILED and gives no slice" in refusal
    assert "There is no more capacity" in refusal


def test_a_second_start_waits_for_the_same_request_also_while_gcloud_fails(pair):
    pair.cloud.queue_ends("ro", "WAITING_FOR_RESOURCES")
    create = ["create", "ro", ZONE, "v4-32", "--queued"]
    first = pair.start(*create)
    assert "the request for ro is WAITING_FOR_RESOURCES" in first.stdout.readline()
    os.killpg(first.pid, signal.SIGINT)
    first.communicate(timeout=240)

    second = pair.start(*create)
    assert "A request for ro exists already" in second.stdout.readline()
    pair.cloud.write("faults", {"queued-resources describe": 2})
    pair.wait_for(lambda: pair.cloud.read("faults")["queued-resources describe"] == 0, True)
    pair.cloud.queue_ends("ro", "ACTIVE")
    out, err = second.communicate(timeout=240)
    assert (second.returncode, "is READY" in out) == (0, True), err
    assert err.count("gcloud cannot describe the queued-resources ro") == 2
    assert len(pair.cloud.calls("queued-resources create")) == 1


def test_an_earlier_request_for_another_type_is_not_taken_up(pair):
    pair.cloud.queue_ends("ro", "PROVISIONING")
    first = pair.start("create", "ro", ZONE, "v4-32", "--queued")
    assert "the request for ro is WAITING_FOR_RESOURCES" in first.stdout.readline()
    os.killpg(first.pid, signal.SIGINT)
    first.communicate(timeout=240)
    refusal = sentence(pair.ask("create", "ro", ZONE, "v4-8", "--queued"))
    assert "asks for v4-32, not for v4-8" in refusal


def test_a_gcloud_that_does_not_answer_is_a_sentence(pair):
    pair.cloud.change(slow={"tpu-vm describe": 300})
    refusal = sentence(pair.ask("status", "ro", ZONE, TPU_SSH_SECONDS="1"))
    assert "no answer within 1 s" in refusal


def test_ctrl_c_ends_a_command_while_gcloud_runs(pair):
    pair.cloud.queue_ends("ro", "WAITING_FOR_RESOURCES")
    pair.cloud.change(slow={"queued-resources describe": 300})
    process = pair.start("create", "ro", ZONE, "v4-32", "--queued")
    pair.wait_for(lambda: len(pair.cloud.calls("queued-resources describe")), 1)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=240)
    assert process.returncode == 130


@pytest.mark.parametrize("how", [["--queued"], []])
def test_a_creation_that_ctrl_c_ends_names_how_to_delete_what_is_left(how, pair):
    pair.cloud.change(slow={"tpu-vm create": 300, "queued-resources create": 300})
    process = pair.start("create", "ro", ZONE, "v4-32", *how)
    create = "queued-resources create" if how else "tpu-vm create"
    pair.wait_for(lambda: len(pair.cloud.calls(create)), 1)
    os.killpg(process.pid, signal.SIGINT)
    assert f"launch/tpu.py delete ro {ZONE}" in process.communicate(timeout=240)[0]
    assert process.returncode == 130


def test_a_warning_of_gcloud_does_not_make_a_slice_missing(pair):
    pair.do("create", "ro", ZONE, "v4-32")
    pair.cloud.change(warning="WARNING: The component manager was not found. NOT_FOUND\n")
    assert "is READY" in pair.ask("status", "ro", ZONE).stdout


def test_deleting_asks_first(pair):
    pair.do("create", "ro", ZONE, "v4-32")
    for typed in ("", "\n", "n\n"):
        process = pair.ask("delete", "ro", ZONE, typed=typed)
        assert process.returncode == 2
        assert process.stderr.endswith("tpu.py: nothing was deleted.\n")
    assert not pair.cloud.calls("tpu-vm delete")
    assert pair.ask("delete", "ro", ZONE, typed="y\n").returncode == 0
    assert pair.do("delete", "ro", ZONE, "--yes") == f"There is no slice ro in {ZONE}.\n"


# --- one sentence for what is wrong


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """A cloud with a slice called mine, and no other."""
    with Pod(tmp_path_factory.mktemp("idle"), workers=2) as pod:
        pod.do("create", "mine", ZONE, "v4-8")
        yield pod


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("fly ro ZONE", "fly"),
        ("create ro ZONE", "type"),
        ("create ro v4-32 ZONE", "v4-32"),
        ("create ro ZONE v9-8", "TPU_RUNTIME"),
        ("create ro ZONE v4-8 --sport", "--sport"),
        ("status", "name, zone"),
        ("status ro nowhere", "nowhere"),
        ("status ro ZONE", "tpu.py create ro us-central2-b"),
        ("delete ro ZONE stray", "stray"),
        ("create ro ZONE tpu7x-8", "Compute Engine"),
        ("logs ro ZONE first", "first"),
        ("run ro ZONE", "script"),
        ("run mine ZONE launch/ro_t5x_huge.sh", "launch/ro_t5x_huge.sh"),
        ("supervise ro ZONE launch/like_t5x.sh", "tpu.py create ro us-central2-b"),
        ("TPU_RESTARTS=few status mine ZONE", "TPU_RESTARTS is 'few'"),
        ("TPU_RESTARTS=inf status mine ZONE", "TPU_RESTARTS is 'inf'"),
        ("TPU_POLL_SECONDS=-1 status mine ZONE", "TPU_POLL_SECONDS is '-1'"),
        ("MODEL_DIR= supervise mine ZONE launch/like_t5x.sh", "MODEL_DIR is ''"),
    ],
)
def test_a_wrong_call_is_one_sentence(call, named, idle):
    words = call.replace("ZONE", ZONE).split()
    settings = dict(word.split("=") for word in words if "=" in word)
    refusal = sentence(idle.ask(*[word for word in words if "=" not in word], **settings))
    assert refusal.startswith("tpu.py: ")
    assert named in refusal


def test_the_help_of_a_command_says_what_each_of_its_words_means(idle):
    for command in ("create", "setup", "run", "supervise", "status", "logs", "stop", "delete"):
        text = idle.do(command, "--help")
        entries = re.split(r"\n  (?=\S)", text.partition("positional arguments:")[2])[1:]
        assert len(entries) > 2
        for entry in entries:
            assert len(entry.split()) > 2, (command, entry)


def test_without_words_the_commands_are_shown(idle):
    process = idle.ask()
    assert process.returncode == 2
    assert "python3 launch/tpu.py create ro" in process.stderr


@pytest.mark.parametrize("machine", ["sys.version_info = (3, 8, 18)", "import os; os.name = 'nt'"])
def test_a_machine_that_cannot_run_it_is_told_so(machine):
    program = f"import runpy, shutil, sys; {machine}; runpy.run_path('{LAUNCH}/tpu.py')"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "take 3.9 or newer on Linux or macOS; on Windows, in WSL" in sentence(process)


def test_without_gcloud_a_sentence_links_its_installation(tmp_path):
    git = executable(tmp_path / "git", "#!/bin/sh\necho https://host/user/repo\n")
    command = [sys.executable, str(LAUNCH / "tpu.py"), "status", "ro", ZONE]
    env = {"PATH": str(git.parent)}
    process = subprocess.run(command, env=env, capture_output=True, text=True)
    assert "gcloud is not installed" in sentence(process)


# --- setting up


def test_set_up_is_the_same_on_every_worker_and_can_be_repeated(pod):
    pod.do("create", "ro", ZONE, "v4-32")
    output = pod.do("setup", "ro", ZONE, HF_TOKEN="hf_secret")
    again = pod.do("setup", "ro", ZONE, HF_TOKEN="hf_other")
    for worker in range(4):
        assert f"worker {worker}   {pod.head()}  " in output
        assert f"worker {worker}   {pod.head()}  " in again
        home = pod.cloud.home("ro", worker)
        assert (home / "origin/.venv/installed").read_text().startswith("--tpu\n")
        token = home / ".cache/huggingface/token"
        assert token.read_text() == "hf_other\n"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
    installs = (pod.folder / "calls").read_text().count("uv pip install")
    assert installs == 4, "the second set-up has nothing to install"
    assert "hf_" not in json.dumps(pod.cloud.calls()), "a token is in a command line"


class _PrivateRepository(loopback.Handler):
    """Serves a bare repository to whoever logs in as me with ghp_word."""

    def do_GET(self):
        login = "Basic " + base64.b64encode(b"me:ghp_word").decode()
        if self.headers.get("Authorization") != login:
            return self.reply(401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        path = self.fake.folder / self.path.partition("?")[0].lstrip("/")
        return self.reply(200, path.read_bytes()) if path.is_file() else self.reply(404)


@pytest.mark.parametrize("where", ["TPU_REPO", "origin"])
def test_the_login_of_a_repository_goes_to_workers_as_a_file(pair, where):
    bare = pair.folder / "served/origin.git"
    subprocess.run(["git", "clone", "-q", "--bare", pair.folder / "origin", bare], check=True)
    subprocess.run(["git", "-C", bare, "update-server-info"], check=True)
    with loopback.Server(_PrivateRepository) as server:
        server.folder = pair.folder / "served"
        repository = f"{server.url}/origin.git".replace("://", "://me:ghp_word@")
        settings = {"GIT_TERMINAL_PROMPT": "0", "STEPS": "1"}
        if where == "TPU_REPO":
            settings["TPU_REPO"] = repository
        else:
            command = ["git", "-C", pair.clone, "remote", "set-url", "origin", repository]
            subprocess.run(command, check=True)
        pair.do("create", "ro", ZONE, "v4-32")
        output = pair.do("setup", "ro", ZONE, **settings)
        output += pair.do("setup", "ro", ZONE, **settings)
        output += pair.do("run", "ro", ZONE, "launch/like_t5x.sh", **settings)  # it pulls
    home = pair.cloud.home("ro", 1)
    login = home / ".config/t5x/git_login"
    assert login.read_text().startswith("http://me:ghp_word@127.0.0.1")
    assert stat.S_IMODE(login.stat().st_mode) == 0o600
    assert "ghp_" not in (home / "origin/.git/config").read_text()
    assert f"worker 1   {pair.head()}  " in output
    assert "ghp_" not in output + json.dumps(pair.cloud.calls())


def test_without_a_branch_workers_return_to_the_repositorys_own(pair):
    subprocess.run([*pair.git, "branch", "other"], check=True)
    pair.do("create", "ro", ZONE, "v4-32")
    pair.do("setup", "ro", ZONE, TPU_BRANCH="other")
    pair.commit("second")
    output = pair.do("setup", "ro", ZONE)
    assert f"worker 0   {pair.head()}  " in output
    assert f"worker 1   {pair.head()}  " in output


def test_set_up_changes_nothing_under_a_run_that_trains(pair):
    pair.make()
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh")
    (pair.folder / "origin/requirements/lock.txt").write_text("one==2\n")
    pair.commit("another package")
    clone = pair.cloud.home("ro", 1) / "origin"
    head = lambda: subprocess.check_output(["git", "-C", clone, "rev-parse", "HEAD"])
    before = (clone / ".venv/installed").read_text(), head()
    process = pair.ask("setup", "ro", ZONE)
    assert ((clone / ".venv/installed").read_text(), head()) == before
    assert "worker 1: a run is training in ~/origin" in process.stderr
    pair.do("stop", "ro", ZONE)
    pair.do("setup", "ro", ZONE)
    assert head() != before[1]


def test_a_login_of_an_earlier_set_up_leaves_the_clone(pair):
    pair.make()
    config = pair.cloud.home("ro", 0) / "origin/.git/config"
    origin = str(pair.folder / "origin")
    config.write_text(config.read_text().replace(origin, "https://me:ghp_word@127.0.0.1:9/x"))
    pair.do("setup", "ro", ZONE)
    assert "ghp_" not in config.read_text()


def test_missing_tools_of_a_worker_are_installed(pair):
    """Without git and Python: fake apt-get and uv are called."""
    tools = pair.folder / "tools"
    programs = "bash env cat mkdir touch chmod dirname cp rm grep ln sort sed"
    for tool in programs.split(" "):
        executable(tools / tool, f'#!/bin/sh\nexec {shutil.which(tool)} "$@"\n')
    note = f'echo "$(basename $0) $*" >> {pair.folder}/asked\n'
    (tools / "basename").symlink_to(shutil.which("basename"))
    executable(tools / "sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    give = f"ln -sf {shutil.which('git')} {tools}\n"
    executable(tools / "apt-get", f"#!/bin/sh\n{note}case $* in *install*) {give};; esac\n")
    shutil.copytree(pair.folder / "pythons", pair.folder / "managed")
    (pair.folder / "managed/uv").rename(pair.folder / "uv")
    managed = f"{pair.folder}/managed/python3.13"
    cases = f"*find*3.13*) echo {managed};; pip*) {pair.folder}/uv $*;;"
    executable(tools / "python3", f"#!/bin/sh\n{note}")
    executable(tools / "uv", f"#!/bin/sh\n{note}case $* in {cases} esac\n")
    pair.worker_settings(PATH=str(tools))
    pair.make()
    calls = (pair.folder / "asked").read_text()
    assert re.search(r"^apt-get .* install git$", calls, re.MULTILINE)
    assert "python3 -m pip install --quiet --user uv" in calls
    assert "uv python install --quiet 3.13" in calls
    assert (pair.cloud.home("ro", 0) / "origin/.venv/installed").exists()


def test_no_connection_waits_for_ever_for_a_worker_that_is_lost(pair):
    pair.do("create", "ro", ZONE, "v4-32")
    pair.do("setup", "ro", ZONE, HF_TOKEN="hf_secret")
    for kind in ("ssh", "scp"):
        calls = pair.cloud.calls(f"tpu-vm {kind}")
        assert calls
        assert all(f"--{kind}-flag=-oServerAliveInterval=15" in call for call in calls)


def test_a_slash_after_the_repository_does_not_change_its_folder(pair):
    pair.do("create", "ro", ZONE, "v4-32")
    pair.do("setup", "ro", ZONE, TPU_REPO=f"{pair.folder}/origin/")
    assert (pair.cloud.home("ro", 0) / "origin/.git").is_dir()


def test_a_set_up_that_fails_names_the_worker_and_why(pair):
    pair.do("create", "ro", ZONE, "v4-32")
    (pair.cloud.home("ro", 1) / "origin").write_text("in the way")
    process = pair.ask("setup", "ro", ZONE)
    assert process.returncode == 2
    lines = process.stderr.splitlines()
    assert lines[0].startswith("worker 1: fatal: destination path 'origin' already exists")
    assert lines[1:] == ["tpu.py: the set-up has failed on worker 1 of 2."]


# --- running


def test_a_run_starts_everywhere_saves_when_stopped_and_resumes(pod):
    pod.make()
    flags = ["--gin.TRAIN_STEPS=7", "--gin.NAME='a \"b\" $c'"]
    secret = {"HF_TOKEN": "hf_secret", "TPU_PASS": "STEPS HF_TOKEN"}
    output = pod.do("run", "ro", ZONE, "launch/like_t5x.sh", *flags, **secret)
    assert "hf_" not in json.dumps(pod.cloud.calls())
    assert "is started on 4 workers of ro at commit " in output
    pod.wait_for_step(3)
    for worker in range(4):
        assert (pod.cloud.home("ro", worker) / "flags").read_text().splitlines() == flags

    again = pod.ask("run", "ro", ZONE, "launch/like_t5x.sh")
    assert again.returncode == 2
    warning, first, *_, last = again.stderr.splitlines()
    assert warning.startswith(f"warning: MODEL_DIR is {pod.run_dir}: ")
    assert first.startswith("worker 0: launch/like_t5x.sh --gin.TRAIN_STEPS=7")
    assert " is running, started " in first
    assert last.endswith(" cannot start on worker 0, 1, 2, 3 of 4.")

    head, *lines = pod.do("status", "ro", ZONE).splitlines()
    assert head == f"ro in {ZONE} is READY: v4-32, 4 workers"
    training = rf"training  last output {AGO}  step \d+/100000  loss 4.614  accuracy 0.3"
    assert re.fullmatch(rf"worker 0   {training}", lines[0])
    for worker, line in enumerate(lines[1:], start=1):
        assert re.fullmatch(rf"worker {worker}   training  started {AGO}", line)

    assert re.search(r"^step \d+/100000", pod.do("logs", "ro", ZONE), re.MULTILINE)
    assert pod.do("logs", "ro", ZONE, "2") == "", "only worker 0 shows progress"

    output = pod.do("stop", "ro", ZONE)
    assert re.fullmatch(rf"(worker \d   stopped   ended {AGO}.*\n){{4}}", output)
    stopped_at = pod.step()
    assert f"step {stopped_at}/100000" in pod.do("status", "ro", ZONE)

    pod.commit("second")
    output = pod.do("run", "ro", ZONE, "launch/like_t5x.sh", STEPS=str(stopped_at + 5))
    assert f"at commit {pod.head()}" in output, "it pulls first"
    pod.wait_for_step(stopped_at + 5)
    pod.wait_for(lambda: "training" not in pod.do("status", "ro", ZONE), True)
    output = pod.do("status", "ro", ZONE)
    assert output.count("finished") == 4
    assert f"step {stopped_at + 5}/{stopped_at + 5}" in output


def test_logs_are_followed_until_one_has_seen_enough(pair):
    pair.make()
    pair.hold_at(5)
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh")
    process = pair.start("logs", "-f", TPU_NAME="ro", TPU_ZONE=ZONE)
    try:
        seen = [process.stdout.readline() for _ in range(5)]
        pair.release()
        seen += [process.stdout.readline() for _ in range(20)]
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=240)
    assert [int(re.match(r"step (\d+)/", line)[1]) for line in seen] == [*range(1, 26)]


def test_status_shows_a_worker_that_failed_or_is_silent(pair):
    pair.run_dir.mkdir()
    (pair.run_dir / "fail_1").write_text("2 1\n")
    pair.make()
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh")
    pair.wait_for(lambda: pair.ask("status", "ro", ZONE).returncode, 1)
    output = pair.ask("status", "ro", ZONE).stdout
    assert re.search(rf"worker 1 +failed +status 1 {AGO}  Error: something .* worker 1", output)
    assert re.search(r"worker 0 +training ", output)
    output = pair.do("stop", "ro", ZONE)
    assert output.count("stopped") == 2, "a run that has failed can be stopped too"
    pair.cloud.silence("ro", 0)
    output = pair.ask("status", "ro", ZONE).stdout
    assert re.search(r"worker 0 +unknown +does not answer: ERROR: .* return code \[255\]", output)


def test_what_a_shell_prints_when_it_starts_hides_no_state(pair):
    pair.make()
    greeting = pair.folder / "greeting"
    greeting.write_text('if [[ -z "${GREETED:-}" ]]; then export GREETED=1; echo Welcome; fi\n')
    pair.worker_settings(BASH_ENV=str(greeting))
    assert pair.do("status", "ro", ZONE).count("nothing has run here yet") == 2


def test_a_run_that_hangs_can_be_ended_at_once(pair):
    trainer = "#!/usr/bin/env bash\ntrap '' TERM\ntouch ~/deaf\nwhile true; do sleep 0.1; done\n"
    (pair.folder / "origin/launch/like_t5x.sh").write_text(trainer)
    pair.commit("hangs")
    pair.make()
    pair.do("run", "ro", ZONE, "launch/like_t5x.sh")
    pair.wait_for(lambda: len([*pair.cloud.folder.glob("slices/ro/*/deaf")]), 2)
    process = pair.ask("stop", "ro", ZONE, TPU_STOP_SECONDS="1")
    assert process.returncode == 2
    assert "worker 1: the run is still saving, or hangs." in process.stderr
    pair.do("stop", "ro", ZONE, "--kill")
    assert pair.do("status", "ro", ZONE).count("stopped") == 2


def refusal(pod, **settings):
    """Return the errors of a run that cannot start."""
    process = pod.ask("run", "ro", ZONE, "launch/like_t5x.sh", **settings)
    assert process.returncode == 2, process
    return process.stderr


def test_a_run_that_cannot_start_everywhere_starts_nowhere(pair):
    pair.do("create", "ro", ZONE, "v4-32")
    errors = refusal(pair)
    assert (
        "worker 1: there is no clone in ~/origin with a .venv: python3 launch/tpu.py setup ro"
        in errors
    )
    pair.do("setup", "ro", ZONE)

    for folder in ("", "run"):
        assert "2 workers need one folder that all of them can write to" in refusal(
            pair, MODEL_DIR=folder
        )

    clone = pair.cloud.home("ro", 1) / "origin"
    (clone / "launch/like_t5x.sh").write_text("changed here")
    (pair.folder / "origin/launch/like_t5x.sh").write_text("changed there")
    pair.commit("other")
    assert re.search(r"worker 1: git pull failed \(.*launch/like_t5x.sh", refusal(pair))
    subprocess.run(["git", "-C", clone, "checkout", "-q", "."], check=True)
    commit = ["git", "-C", clone, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q"]
    subprocess.run(["git", "-C", clone, "pull", "-q"], check=True)
    subprocess.run([*commit, "--allow-empty", "-m", "of its own"], check=True)
    assert re.search(
        r"different commits \(\w{12} on worker \[0\]; \w{12} on worker \[1\]\)", refusal(pair)
    )

    pair.cloud.silence("ro", 1)
    assert "worker 1: ERROR: " in refusal(pair)
    assert not list(pair.cloud.folder.rglob("run.json"))


def test_a_disk_that_was_full_leaves_no_record_that_cannot_be_read(tmp_path):
    worker = tmp_path / "launch/tpu_worker.py"
    worker.parent.mkdir()
    shutil.copy(LAUNCH / "tpu_worker.py", worker)
    pod = tmp_path / "runs/.pod"
    pod.mkdir(parents=True)
    with tarfile.open(pod / "sent.tgz", "w:gz") as archive:
        archive.add(LAUNCH / "env.example", "launch/env")
    call = lambda command: subprocess.run([sys.executable, worker, command], capture_output=True)
    with full_disk(0):
        assert call("unpack").returncode
    assert call("undo").returncode == 0
    assert not (tmp_path / "launch/env").exists()
