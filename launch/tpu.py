#!/usr/bin/env python3
"""Train on a TPU slice, from this machine, by gcloud: python3 launch/tpu.py COMMAND NAME ZONE …

    create NAME ZONE TYPE         create a slice, of type v4-32 or so; --spot, --queued, --reserved
    setup NAME ZONE               give every worker Python, a clone, .venv and HF_TOKEN; repeatable
    run NAME ZONE SCRIPT …        pull, and start a launch script with its flags on every worker;
                                  --send copies what is not committed
    supervise NAME ZONE SCRIPT …  watch the run, and start it again if it or its slice is lost
    status NAME ZONE              print the state of each worker; exit with 1 if one has failed
    logs NAME ZONE [WORKER]       print the last output of worker 0 or another; -f follows it
    stop NAME ZONE                let the run save and exit; --kill ends one that hangs
    delete NAME ZONE              delete the slice, its disks and its request; --yes does not ask

    python3 launch/tpu.py create ro us-central2-b v4-32 --spot --queued
    python3 launch/tpu.py run ro us-central2-b launch/ro_t5x_base.sh --gin.TRAIN_STEPS=500000

`tpu.py COMMAND --help` says what the options of a command mean.
Settings are environment variables and, if unset there, lines of launch/env: see launch/env.example.
NAME and ZONE may be left out where TPU_NAME and TPU_ZONE are set. launch/tpu_worker.py runs on the
workers.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
from typing import Any, NamedTuple, NoReturn

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from common.secrets import public, split_login  # noqa: E402
from launch import commit  # noqa: E402
from launch.commit import Failed  # noqa: E402

# Secrets go to the workers as files, since every list of processes shows the arguments of commands.
TOKEN, LOGIN = ".cache/huggingface/token", ".config/t5x/git_login"
# Variables that cross ssh with a run, besides those that TPU_PASS names.
PASSED = ["MODEL_DIR"]
SENT = "runs/.pod/sent.tgz"  # what `--send` copies, in a worker's clone
NUMBERS = {  # settings that are computed with, and their defaults
    "TPU_SSH_SECONDS": 120.0,
    "TPU_STOP_SECONDS": 600.0,
    "TPU_POLL_SECONDS": 60.0,
    "TPU_BACKOFF_SECONDS": 30.0,
    "TPU_RESTARTS": 20.0,
}
RUNTIMES = {  # images of workers, by the beginning of a type; the first that fits
    "v2-": "v2-alpha",
    "v3-": "v2-alpha",
    "v4-8": "v2-alpha-tpuv4",
    "v4-": "v2-alpha-tpuv4-pod",
    "v5litepod-": "v2-alpha-tpuv5-lite",
    "v5p-": "v2-alpha-tpuv5",
    "v6e-": "v2-alpha-tpuv6e",
}
GONE = ("MISSING", "PREEMPTED", "TERMINATED", "STOPPED", "HIDDEN")
NOISE = re.compile("SSH: |Using ssh|#####")  # lines that gcloud adds
AT_ONCE = 32  # connections
ZONE = re.compile("[a-z]+-[a-z]+[0-9]+-[a-z0-9]+")
REPORT = re.compile(
    "(none|training|finished|saved|stopped|refused|failed|lost)\t([0-9]{1,18})\t(.{0,1000})"
)
Done = subprocess.CompletedProcess


class Report(NamedTuple):
    """The state of the run on a worker; `unknown` if the worker does not answer."""

    worker: int
    state: str
    step: int
    text: str

    def __str__(self) -> str:
        return f"worker {self.worker:<3} {self.state:<9} {self.text}"


def say(text: object, file: Any = None) -> None:
    """Print a line without secrets and control characters, which would move the cursor."""
    safe = [c for c in public(str(text)) if c in "\n\t" or unicodedata.category(c) != "Cc"]
    print("".join(safe), file=file, flush=True)


def say_when(text: object) -> None:
    """Print a line with the time before it."""
    say(f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}  {text}")


def read_settings() -> dict[str, str]:
    """Return the environment, and what the shell script launch/env adds to it."""
    file, variables = ROOT / "launch/env", {}
    if file.exists():
        show = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
        script = f"set -a; source {shlex.quote(str(file))}; {shlex.join(show)}"
        variables = json.loads(subprocess.check_output(["bash", "-ec", script]).splitlines()[-1])
    return {**variables, **os.environ}


def why(done: Done[str]) -> str:
    """Return why a command failed: the sentence of our script, gcloud's error or the last line.

    An error of gcloud is whole, since it goes on after its first line.
    """
    lines = [line for line in done.stderr.splitlines() if line.strip() and not NOISE.match(line)]
    ours = re.findall(r"^[a-z_]+\.(?:sh|py): (.+)", done.stderr, re.MULTILINE)
    begin = next((n for n, line in enumerate(lines) if line.startswith("ERROR")), len(lines))
    error = ["\n".join(lines[begin:])] if lines[begin:] else []
    return [*ours[-1:], *error, *lines[-1:], f"no reason (status {done.returncode})"][0]


def need_all(answers: list[Done[str]], failure: str) -> None:
    """Say for each worker that has failed why, and raise Failed if there is one."""
    bad = {worker: why(done) for worker, done in enumerate(answers) if done.returncode}
    for worker, reason in bad.items():
        say(f"worker {worker}: {reason}", sys.stderr)
    if bad:
        raise Failed(f"{failure} on worker {', '.join(map(str, bad))} of {len(answers)}.")


class Slice:
    """A slice, its workers, and the commands that reach them.

    `look` reads from gcloud `state` (MISSING if there is no such slice), `workers`, their number,
    and `kind`: the arguments of `create` that made it.
    """

    def __init__(self, name: str, zone: str, settings: dict[str, str]):
        self.name, self.zone, self.settings = name, zone, settings
        self.state, self.workers, self.kind = "MISSING", 0, dict[str, Any]()
        self.numbers = {}
        for key, default in NUMBERS.items():
            try:
                self.numbers[key] = float(settings.get(key) or default)
            except ValueError:
                raise Failed(f"{key} is {settings[key]!r}, not a number: set it to one.") from None
        command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
        origin = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        https = re.sub(r"^git@([^:]+):", r"https://\1/", origin)  # workers do not have your ssh key
        self.repository, self.login = split_login(settings.get("TPU_REPO") or https)
        self.branch = settings.get("TPU_BRANCH", "")

    def __str__(self) -> str:
        spot = ", spot" if self.kind.get("spot") else ""
        about = f"{self.kind['type']}, {self.workers} workers{spot}" if self.kind else "not there"
        return f"{self.name} in {self.zone} is {self.state}: {about}"

    def call(self, command: str) -> str:
        """Return the command line of another command for this slice."""
        return f"python3 launch/tpu.py {command} {self.name} {self.zone}"

    @property
    def folder(self) -> str:
        """The clone in each worker's home."""
        if not self.repository:
            raise Failed("this clone has no origin: set TPU_REPO to the URL that workers clone.")
        return self.settings.get("TPU_FOLDER") or re.sub(r".*/|\.git$", "", self.repository)

    def gcloud(self, *words: str) -> list[str]:
        """Return the command `gcloud compute tpus …` in this zone and project."""
        project = [f"--project={p}" for p in [self.settings.get("TPU_PROJECT")] if p]
        return ["gcloud", "--quiet", *project, "compute", "tpus", *words, f"--zone={self.zone}"]

    def change(self, *words: str) -> None:
        """Run gcloud, which shows what it does; raise Failed if it fails."""
        if subprocess.run(self.gcloud(*words), stdin=subprocess.DEVNULL).returncode:
            raise Failed(f"gcloud could not {words[1]} {self.name}: see above.")

    def ask(self, *words: str, timeout: float | None = None) -> Done[str]:
        """Run gcloud, and return what it prints; its status is 124 if it takes longer than that."""
        command = self.gcloud(*words)
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "errors": "replace"}
        try:
            return subprocess.run(command, capture_output=True, timeout=timeout, **how)
        except subprocess.TimeoutExpired:
            return Done(command, 124, "", f"no answer within {timeout:.0f} s")

    def describe(self, what: str) -> dict[str, Any]:
        """Return what gcloud reports of the tpu-vm or queued-resources of this name, {} if none."""
        done = self.ask(what, "describe", self.name, "--format=json")
        if re.search("NOT_FOUND|was not found", done.stderr):
            return {}
        if done.returncode:
            raise Failed(f"gcloud cannot describe the {what} {self.name}: {why(done)}")
        return json.loads(done.stdout)

    def look(self) -> None:
        """Read the properties of the slice."""
        about = self.describe("tpu-vm")
        self.state, self.workers = (
            about.get("state", "MISSING"),
            len(about.get("networkEndpoints", [])),
        )
        if about:
            how = about.get("schedulingConfig", {})
            self.kind = {"type": about["acceleratorType"], "runtime": about["runtimeVersion"]}
            self.kind |= {name: bool(how.get(name)) for name in ("spot", "reserved")}
            self.kind["queued"] = "queuedResource" in about

    def look_ready(self) -> None:
        """Read its properties; raise Failed if nothing can run on it now."""
        self.look()
        if self.state == "MISSING":
            create = f"{self.call('create')} TYPE"
            raise Failed(f"the slice {self.name} does not exist in {self.zone}: {create}.")
        if self.state != "READY":
            raise Failed(f"{self}, so not READY: wait, or {self.call('delete')}.")

    def queue_state(self) -> str:
        """Return the state of the request of this name, MISSING if there is none."""
        return self.describe("queued-resources").get("state", {}).get("state", "MISSING")

    def internal_ip(self) -> list[str]:
        """Return the flag for a slice without external addresses."""
        return ["--internal-ip"] if self.settings.get("TPU_INTERNAL_IPS") else []

    def ssh(self, worker: int, line: str) -> list[str]:
        """Return the arguments of gcloud that run a command line on a worker."""
        flags = [f"--worker={worker}", "--ssh-flag=-oConnectTimeout=20", *self.internal_ip()]
        flags += ["--ssh-flag=-oServerAliveInterval=15", f"--command={line}"]
        return ["tpu-vm", "ssh", self.name, *flags]

    def on_workers(self, line: str, timeout: float | None = None) -> list[Done[str]]:
        """Run a command line on all workers at the same time."""
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            do = lambda worker: self.ask(*self.ssh(worker, line), timeout=timeout)
            return list(pool.map(do, range(self.workers)))

    def send_secret(self, secret: str, path: str) -> None:
        """Write a secret to a file in the home of every worker, which its user alone can read."""
        folder = path.rpartition("/")[0]
        line = f"umask 077; mkdir -p {folder} && touch {path} && chmod 600 {path}"
        need_all(self.on_workers(line), f"~/{path} could not be made")
        self.send(f"{secret}\n".encode(), path)

    def send(self, content: bytes, path: str) -> None:
        """Write a file in the home of every worker."""
        with tempfile.NamedTemporaryFile() as file:  # which no other user can read
            file.write(content)
            file.flush()
            to = [file.name, f"{self.name}:{path}", "--worker=all", *self.internal_ip()]
            done = self.ask("tpu-vm", "scp", *to)
        if done.returncode:
            raise Failed(f"~/{path} could not be copied to the workers: {why(done)}")

    def worker_line(self, *words: str, **variables: str) -> str:
        """Return the command line that runs launch/tpu_worker.py in a worker's clone."""
        none = f"tpu_worker.py: there is no clone in ~/{self.folder}: {self.call('setup')} first."
        assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        work = [*assignments, ".venv/bin/python", "launch/tpu_worker.py", shlex.join(words)]
        there = f"cd {shlex.quote(self.folder)} 2> /dev/null"
        return f"{there} || {{ echo {shlex.quote(none)} >&2; exit 2; }}; {' '.join(work)}"

    def reports(self) -> list[Report]:
        """Return the state of the run on every worker."""
        answers = self.on_workers(self.worker_line("status"), self.numbers["TPU_SSH_SECONDS"])
        reports = []
        for worker, done in enumerate(answers):
            state, step, text = "unknown", 0, f"does not answer: {why(done)}"
            if answer := REPORT.match(done.stdout):
                state, step, text = answer[1], int(answer[2]), answer[3]
            elif not done.returncode:
                text = f"answers {done.stdout[:80]!r}, not a state and a step: {self.call('setup')}"
            elif "there is no clone" in text:
                state, text = "none", why(done)
            reports.append(Report(worker, state, step, text))
        return reports

    def common_head(self, answers: list[Done[str]], failure: str) -> str:
        """Return the commit that all workers report; raise Failed if one fails or they differ."""
        need_all(answers, failure)
        heads: dict[str, list[int]] = {}
        for worker, done in enumerate(answers):
            lines = re.findall(r"^head ([0-9a-f]{7,40})$", done.stdout, re.MULTILINE)
            heads.setdefault((lines or ["none"])[-1], []).append(worker)
        if len(heads) > 1 or "none" in heads:
            commits = "; ".join(f"{head} on worker {at}" for head, at in heads.items())
            raise Failed(f"the workers have different commits ({commits}): {self.call('setup')}.")
        return next(iter(heads))


# --- commands


def create(
    tpu: Slice, type: str, spot: bool, queued: bool, reserved: bool, runtime: str = ""
) -> None:
    """Create a slice; `queued` waits for it, also for an earlier request."""
    type = re.sub("^v5e-", "v5litepod-", type)
    images = [image for beginning, image in RUNTIMES.items() if type.startswith(beginning)]
    runtime = runtime or tpu.settings.get("TPU_RUNTIME") or [*images, ""][0]
    if not runtime and type.startswith("tpu7x-"):
        raise Failed(f"{type} is a slice of GKE or Compute Engine, not of this API: docs/pods.md.")
    if not runtime:
        command = "gcloud compute tpus versions list"
        raise Failed(f"the runtime of {type!r} is not known: set TPU_RUNTIME ({command}).")
    tpu.look()
    queue = tpu.queue_state() if queued else "MISSING"
    if tpu.state != "MISSING" and (tpu.state != "CREATING" or queue == "MISSING"):
        raise Failed(f"{tpu}: use it, or {tpu.call('delete')}.")
    options = [f"--accelerator-type={type}", *["--spot"] * spot, *["--reserved"] * reserved]
    for flag in ("network", "subnetwork", "service-account"):
        if value := tpu.settings.get(f"TPU_{flag.upper().replace('-', '_')}"):
            options.append(f"--{flag}={value}")
    options += [f"{flag}s" for flag in tpu.internal_ip()]
    if not queued:
        tpu.change("tpu-vm", "create", tpu.name, f"--version={runtime}", *options)
    elif queue == "MISSING":
        if limit := tpu.settings.get("TPU_QUEUE_FOR"):
            options.append(f"--valid-until-duration={limit}")
        options += [f"--node-id={tpu.name}", f"--runtime-version={runtime}", "--async"]
        tpu.change("queued-resources", "create", tpu.name, *options)
    else:
        say(f"A request for {tpu.name} exists already; waiting for it.")
    if queued:
        wait_in_queue(tpu)
    tpu.look()
    say(f"{tpu}. Next: {tpu.call('setup')}")


def wait_in_queue(tpu: Slice) -> None:
    """Wait until the request is granted, also while gcloud does not respond."""
    state = ""
    while state != "ACTIVE":
        before = state
        try:
            state = tpu.queue_state()
        except Failed as error:
            say(error, sys.stderr)
        if state != before:
            say_when(f"the request for {tpu.name} is {state}")
        if state in ("FAILED", "SUSPENDED", "SUSPENDING", "DELETING", "MISSING"):
            again = f"{tpu.call('delete')}, then ask again"
            raise Failed(f"the request for {tpu.name} is {state} and gives no slice: {again}.")
        if state != "ACTIVE":
            time.sleep(tpu.numbers["TPU_POLL_SECONDS"])


def setup(tpu: Slice) -> None:
    """Prepare all workers in the same way, by launch/tpu_worker_setup.sh."""
    tpu.look_ready()
    first, tries = tpu.ssh(0, "true"), 1
    # A new slice rejects ssh for a while; the first connection also creates your key.
    while (done := tpu.ask(*first, timeout=tpu.numbers["TPU_SSH_SECONDS"])).returncode:
        if tries == 5:
            raise Failed(f"worker 0 of {tpu.name} rejects ssh: {why(done)}")
        tries += 1
        time.sleep(min(15, tpu.numbers["TPU_POLL_SECONDS"]))
    say(f"Setting up {tpu.workers} workers of {tpu.name} from {tpu.repository}.")
    if token := tpu.settings.get("HF_TOKEN"):
        tpu.send_secret(token, TOKEN)
    if tpu.login:
        tpu.send_secret(tpu.login, LOGIN)
    script = (ROOT / "launch/tpu_worker_setup.sh").read_text()
    words = ["setup", tpu.folder, tpu.repository, tpu.branch, LOGIN if tpu.login else ""]
    answers = tpu.on_workers(f"bash -c {shlex.join([script, *words])}")
    head = tpu.common_head(answers, "the set-up has failed")
    for worker, done in enumerate(answers):
        versions = re.findall(r"^has (.*)", done.stdout, re.MULTILINE)
        say(f"worker {worker:<3} {head}  {(versions or ['?'])[0]}")


def run(tpu: Slice, script: str, flags: list[str], send: bool = False) -> None:
    """Start a launch script on all workers, or on none if one of them is not ready for it."""
    tpu.look_ready()
    check_run(tpu, script, flags)
    start(tpu, script, flags, unsent_files(tpu, script, flags, send))


def unsent_files(tpu: Slice, script: str, flags: list[str], send: bool) -> bytes:
    """Return an archive of what workers lack for a run, b"" if nothing; without `send` refuse it.

    A local path outside the clone may be a mounted folder, so it gives only a warning.
    """
    address = tpu.repository if tpu.settings.get("TPU_REPO") else "origin"
    tpu.folder  # noqa: B018  raises where workers have nothing to clone
    look = commit.look(script, flags, commit.Origin(address, tpu.branch, tpu.login))
    look.need_all(send)
    if look.elsewhere:
        paths = commit.shown([*look.elsewhere])
        mounted = "which workers have only if that folder is mounted there: a bucket is safer"
        say(f"warning: the run reads {paths}, {mounted}.", sys.stderr)
    return look.archive()


def start(tpu: Slice, script: str, flags: list[str], archive: bytes) -> None:
    """Start a checked run on all workers, with the files of an archive over the last push."""
    answers = tpu.on_workers(tpu.worker_line("check"))
    head = tpu.common_head(answers, "nothing was started: a run cannot start")
    if archive:
        tpu.send(archive, f"{tpu.folder}/{SENT}")
        answers = tpu.on_workers(tpu.worker_line("unpack"))
        need_all(answers, "nothing was started: what is not committed could not be unpacked")
        head += " with files that are not committed"
    names = {*PASSED, *tpu.settings.get("TPU_PASS", "").split()} - {"HF_TOKEN"}
    variables = {name: tpu.settings[name] for name in sorted(names) if tpu.settings.get(name)}
    answers = tpu.on_workers(tpu.worker_line("start", script, *flags, **variables))
    need_all(answers, f"{tpu.call('stop')} ends the others: {script} could not be started")
    say(f"{script} is started on {tpu.workers} workers of {tpu.name} at commit {head}.")


def check_run(tpu: Slice, script: str, flags: list[str], is_recreated: bool = False) -> None:
    """Require a launch script, and a MODEL_DIR that all workers share and that outlives the slice.

    An absolute path may be a mounted folder, so it gives only a warning.
    """
    if not (script.endswith(".sh") and (ROOT / script).is_file()):
        example = "name one, such as launch/ro_t5x_base.sh"
        raise Failed(f"{script!r} is not a launch script of this clone: {example}.")
    folders = [flag.partition("=")[2] for flag in flags if flag.startswith("--gin.MODEL_DIR=")]
    folder = [tpu.settings.get("MODEL_DIR", ""), *folders][-1].strip().strip("'\"")
    if "://" in folder or folder[:1] in ("%", "@"):  # % and @ refer to another gin setting
        return
    if tpu.workers > 1:
        reason = f"{tpu.workers} workers need one folder that all of them can write to"
    elif is_recreated:
        reason = "a slice that is created again has an empty disk"
    else:
        return
    if not folder.startswith("/"):
        mounted = "(or to a folder that is mounted on every worker)"
        raise Failed(f"MODEL_DIR is {folder!r} and {reason}: set it to gs://bucket/run {mounted}.")
    unless = "unless that folder is mounted from elsewhere, it is deleted with the slice"
    say(f"warning: MODEL_DIR is {folder}: {unless}.", sys.stderr)


def status(tpu: Slice) -> int:
    """Print the run's state on every worker; return 1 if one has failed or does not respond."""
    tpu.look_ready()
    reports = tpu.reports()
    say("\n".join(map(str, [tpu, *reports])))
    return int(any(r.state in ("failed", "refused", "lost", "unknown") for r in reports))


def logs(tpu: Slice, worker: int, f: bool) -> None:
    """Print the end of a worker's output; `f` follows it."""
    tpu.look_ready()
    if not 0 <= worker < tpu.workers:
        raise Failed(f"worker {worker} does not exist: {tpu.name} has {tpu.workers}, from 0.")
    line = tpu.worker_line("log", *(["20", "-F"] if f else ["100"]))
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "errors": "replace"}
    how |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(tpu.gcloud(*tpu.ssh(worker, line)), **how) as process:
        for text in process.stdout or ():
            if not NOISE.match(text):
                say(text.rstrip("\n"))
    if process.returncode:
        raise Failed(f"worker {worker} shows no log: see above.")


def stop(tpu: Slice, kill: bool) -> int:
    """End the run; return 1 if the state of a worker is not known afterwards."""
    tpu.look_ready()
    seconds = f"{tpu.numbers['TPU_STOP_SECONDS']:.0f}"
    words = ["kill"] if kill else ["stop", seconds]
    answers = tpu.on_workers(tpu.worker_line(*words))
    need_all(answers, f"the run has not ended within {seconds} s (--kill ends it at once)")
    reports = tpu.reports()
    say("\n".join(map(str, reports)))
    return int(any(r.state == "unknown" for r in reports))


def delete(tpu: Slice, yes: bool) -> None:
    """Delete the slice and its request; without `yes` ask first."""
    tpu.look()
    queue = tpu.queue_state()
    if tpu.state == queue == "MISSING":
        say(f"There is no slice {tpu.name} in {tpu.zone}.")
        return
    if not yes:
        say(f"{tpu}; its request is {queue}. A running supervise would create it again: end that.")
        say("Delete it, with the disks of its workers? [y/N]")
        if not sys.stdin.readline().lower().startswith("y"):
            raise Failed("nothing was deleted.")
    if queue != "MISSING":
        tpu.change("queued-resources", "delete", tpu.name, "--force")
        tpu.look()  # the request may have taken the slice with it
    if tpu.state != "MISSING":
        tpu.change("tpu-vm", "delete", tpu.name)
    say(f"{tpu.name} is deleted.")


# --- supervision


def supervise(tpu: Slice, script: str, flags: list[str], send: bool = False) -> None:
    """Watch a run until it has finished, and start it again whenever it or its slice is lost."""
    tpu.look()
    if tpu.state == "MISSING":
        unknown = f"the slice {tpu.name} does not exist in {tpu.zone}, so its type is unknown"
        raise Failed(f"{unknown}: {tpu.call('create')} TYPE.")
    check_run(tpu, script, flags, is_recreated=True)
    archive = unsent_files(tpu, script, flags, send)
    supervision, is_over = Supervision(tpu, script, flags, archive), False
    say_when(f"{tpu}. {shlex.join([script, *flags])} is supervised until it has finished.")
    while not is_over:
        if supervision.look() == "READY":
            is_over = supervision.judge()
        elif tpu.state in GONE:  # other states lead to READY or to one of these
            is_over = supervision.again(f"the slice {tpu.name} is {tpu.state}")
        if not is_over:
            time.sleep(tpu.numbers["TPU_POLL_SECONDS"])


class Supervision:
    """The state of a supervised run, and what to do about it."""

    def __init__(self, tpu: Slice, script: str, flags: list[str], archive: bytes = b""):
        self.tpu, self.script, self.flags, self.kind = tpu, script, flags, tpu.kind
        self.archive = archive  # what was not committed at the start
        self.is_started = False  # so that what workers report is about this run
        self.reached = self.tries = 0  # the newest step, and the restarts since
        self.doubtful = self.silent = 0  # polls at which workers disagree, or do not respond

    def succeeds(self, action: Any, *arguments: Any) -> bool:
        """Return whether an action succeeds; say why if it does not."""
        try:
            action(*arguments)
            return True
        except Failed as error:
            say_when(error)
            return False

    def look(self) -> str:
        """Return the state of the slice, UNKNOWN if gcloud does not say it."""
        if not self.succeeds(self.tpu.look):
            self.tpu.state = "UNKNOWN"
        return self.tpu.state

    def judge(self) -> bool:
        """Act on what the workers report; return whether nothing is left to do."""
        reports = self.tpu.reports()
        states = {report.state for report in reports}
        some_train = states & {"training", "unknown"}  # or may train
        problem = next((str(report) for report in reports if report.state != "training"), "")
        step = max((report.step for report in reports), default=0)
        if step > self.reached:
            self.reached, self.tries = step, 0
        if states == some_train:
            self.is_started |= "training" in states
            self.doubtful, self.silent = 0, self.silent + 1 if problem else 0
            if self.silent == 4:
                nobody = f"no worker of {self.tpu.name} answers: its network, or yours? "
                say_when((nobody if states == {"unknown"} else "") + problem)
        elif some_train and self.doubtful < 3:  # they may not have noticed yet that one has ended
            self.doubtful += 1
        elif not self.is_started:  # the states are those of an earlier run
            if self.tries or not self.succeeds(self.start):
                return self.again("the first start has failed", remake="unknown" in states)
        elif "stopped" in states:
            return self.was_stopped()
        elif reports[0].state == "finished" and not some_train:
            say_when(f"{self.tpu.name} has finished: {reports[0].text}")
            return True
        elif "refused" in states:
            refusal = next(report for report in reports if report.state == "refused")
            raise Failed(f"the trainer rejects its configuration: {refusal}")
        else:
            return self.again(problem, remake="unknown" in states)
        return False

    def was_stopped(self) -> bool:
        """Say that the user has stopped the run, which is the end of its supervision."""
        say_when(f"{self.tpu.name} was stopped by tpu.py stop at step {self.reached}.")
        return True

    def again(self, reason: str, remake: bool = False) -> bool:
        """Wait, then start the run again; return whether the user has stopped it meanwhile."""
        tpu, limit = self.tpu, int(self.tpu.numbers["TPU_RESTARTS"])
        if self.tries >= limit:
            vain = f"{tpu.name} made no new step in {limit} restarts (TPU_RESTARTS)"
            raise Failed(f"{vain}; the last time: {reason}.")
        self.tries += 1
        seconds = backoff(self.tries, tpu.numbers["TPU_BACKOFF_SECONDS"])
        say_when(f"{reason}; try {self.tries} of {limit} in {seconds:.0f} s.")
        time.sleep(seconds)
        is_asked = self.look() == "READY" and self.is_started
        if is_asked and any(report.state == "stopped" for report in tpu.reports()):
            return self.was_stopped()
        self.succeeds(self.start, remake)
        self.doubtful = self.silent = 0
        return False

    def start(self, remake: bool = False) -> None:
        """Start the run, on a new slice if there is none, or with `remake`."""
        tpu = self.tpu
        if tpu.state in GONE or (remake and tpu.state == "READY"):
            say_when(f"{tpu}; it is created again as it was.")
            # A request that still waits keeps its place in the queue.
            if tpu.state != "MISSING" or tpu.queue_state() in ("SUSPENDED", "SUSPENDING", "FAILED"):
                delete(tpu, yes=True)
            create(tpu, **self.kind)
        elif self.tries:
            self.succeeds(stop, tpu, True)
        setup(tpu)
        start(tpu, self.script, self.flags, self.archive)
        if not self.is_started:
            self.is_started, self.reached = True, 0  # earlier steps belong to another run


def backoff(tries: int, seconds: float) -> float:
    """Return the wait before a restart, which doubles each time."""
    return min(900.0, seconds * 2 ** min(tries - 1, 5))


# --- command line


class Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong with a command line."""

    def error(self, message: str) -> NoReturn:
        """Raise Failed with the message."""
        raise Failed(f"{message} (python3 launch/tpu.py --help shows all commands).")


CREATE_OPTIONS = {
    "spot": "cheaper, and can be taken at any time; most grants are of spot slices",
    "queued": "wait in the queue until there is capacity",
    "reserved": "take it from your reservation",
}


def run_options() -> argparse.ArgumentParser:
    """Return the parser of the options of `run` and `supervise`, before or after the script."""
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    about = "copy what is not committed to all workers, over the last push"
    options.add_argument("--send", action="store_true", help=about)
    return options


def parser(settings: dict[str, str]) -> argparse.ArgumentParser:
    """Return the parser of the command line: `do` is a function, the rest are its arguments."""
    parser = Parser("tpu.py", usage=argparse.SUPPRESS, description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    own = run_options()
    parsers = {}
    for do in (create, setup, run, supervise, status, logs, stop, delete):
        about = (do.__doc__ or "").replace("`", "")
        parents = [own] if do in (run, supervise) else []
        parsers[do] = commands.add_parser(
            do.__name__,
            prog=f"python3 launch/tpu.py {do.__name__}",
            description=about,
            parents=parents,
        )
        parsers[do].set_defaults(do=do)
        parsers[do].add_argument("name", help="the slice's; TPU_NAME by default")
        parsers[do].add_argument("zone", help="such as us-central2-b; TPU_ZONE by default")
    parsers[create].add_argument("type", help="such as v4-32 or v6e-16, as the grant's letter says")
    for name, about in CREATE_OPTIONS.items():
        default = bool(settings.get(f"TPU_{name.upper()}"))
        option = {"action": "store_true", "default": default, "help": about}
        parsers[create].add_argument(f"--{name}", **option)
    for do in (run, supervise):
        parsers[do].add_argument("script", help="such as launch/ro_t5x_base.sh")
        about = "go to the script; --gin.NAME=value sets a setting"
        parsers[do].add_argument("flags", nargs=argparse.REMAINDER, help=about)
    about = "whose output is printed, 0 by default"
    parsers[logs].add_argument("worker", type=int, nargs="?", default=0, help=about)
    parsers[logs].add_argument("-f", action="store_true", help="follow it; Ctrl-C ends that")
    about = "end at once a run that hangs; it resumes from its last checkpoint"
    parsers[stop].add_argument("--kill", action="store_true", help=about)
    parsers[delete].add_argument("--yes", action="store_true", help="do not ask")
    return parser


def main() -> int:
    """Run a command, and return the exit status."""
    settings, words = read_settings(), sys.argv[1:]
    if not words:
        sys.stderr.write(__doc__ or "")
        raise Failed("give a COMMAND of these.")
    slice = [settings.get("TPU_NAME", ""), settings.get("TPU_ZONE", "")]
    if words and all(slice) and not (len(words) > 2 and ZONE.fullmatch(words[2])):
        words[1:1] = slice
    arguments = vars(parser(settings).parse_args(words))
    if "flags" in arguments:  # those of ours may stand after the script too
        own, arguments["flags"] = run_options().parse_known_args(arguments["flags"])
        arguments.update({name: value for name, value in vars(own).items() if value})
    if not ZONE.fullmatch(arguments["zone"]):
        raise Failed(
            f"{arguments['zone']!r} is not a zone such as us-central2-b: NAME ZONE come first."
        )
    if not shutil.which("gcloud"):
        raise Failed("gcloud is not installed: see https://cloud.google.com/sdk/docs/install.")
    do, tpu = arguments.pop("do"), Slice(arguments.pop("name"), arguments.pop("zone"), settings)
    return do(tpu, **arguments) or 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        say(f"tpu.py: {error}", sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
