"""A TPU slice: what gcloud says of it, and the commands that reach its workers.

    tpu = Slice("ro", "us-central2-b", settings)
    tpu.look()
    tpu.state, tpu.workers              # "READY", 4
    tpu.on_workers("uptime")

It runs on the user's own machine, by Python 3.9 without packages.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import json
import math
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import unicodedata
from typing import Any, NamedTuple

from common.secrets import public, split_login
from launch.commit import Failed

ROOT = pathlib.Path(__file__).resolve().parents[1]
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
ALIVE = ("-oConnectTimeout=20", "-oServerAliveInterval=15")  # ends those to a lost worker
REPORT = re.compile(  # a line, since a shell that starts may print others before
    "^(none|training|finished|saved|stopped|refused|failed|lost)\t([0-9]{1,18})\t(.{0,1000})",
    re.MULTILINE,
)
Done = subprocess.CompletedProcess


class Report(NamedTuple):
    """The state of the run on a worker; `unknown` if the worker does not answer.

    `command` is the run's, "" if the worker does not say it.
    """

    worker: int
    state: str
    step: int
    text: str
    command: str = ""

    def __str__(self) -> str:
        return f"worker {self.worker:<3} {self.state:<9} {self.text}"


def is_on(settings: dict[str, str], name: str) -> bool:
    """Return whether a setting that is a switch is set, and not to 0."""
    return settings.get(name, "") not in ("", "0")


def safe(text: object) -> str:
    """Return a text without secrets and control characters, which would move the cursor."""
    return "".join(c for c in public(str(text)) if c in "\n\t" or unicodedata.category(c) != "Cc")


def say(text: object, file: Any = None) -> None:
    """Print a safe text, if its reader is still there: the work goes on."""
    with contextlib.suppress(OSError):
        print(safe(text), file=file, flush=True)


def say_when(text: object) -> None:
    """Print a line with the time before it."""
    say(f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}  {text}")


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
    `kind`, the arguments of `create` that made it, and `created`, in seconds since 1970. `clock` is
    asked for the time and to sleep.
    """

    def __init__(self, name: str, zone: str, settings: dict[str, str], clock: Any = time):
        self.name, self.zone, self.settings, self.clock = name, zone, settings, clock
        self.state, self.workers, self.kind = "MISSING", 0, dict[str, Any]()
        self.created = 0.0
        self._request: dict[str, Any] = {}  # what gcloud reported of it, read by `queue_state`
        self.numbers = {}
        for key, default in NUMBERS.items():
            value = settings.get(key) or default
            try:
                number = float(value)
            except ValueError:
                number = math.nan
            if not 0 <= number < math.inf:
                raise Failed(f"{key} is {value!r}, not a number of 0 or more: set it to one.")
            self.numbers[key] = number
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
        name = re.sub(r".*/|\.git$", "", self.repository.rstrip("/"))
        return self.settings.get("TPU_FOLDER") or name

    def gcloud(self, *words: str, alpha: bool = False) -> list[str]:
        """Return the command `gcloud compute tpus …`, or `gcloud alpha …`, in zone and project."""
        project = [f"--project={p}" for p in [self.settings.get("TPU_PROJECT")] if p]
        group = [*["alpha"] * alpha, "compute", "tpus"]
        return ["gcloud", "--quiet", *project, *group, *words, f"--zone={self.zone}"]

    def change(self, *words: str, alpha: bool = False) -> None:
        """Run gcloud, which shows what it does; raise Failed if it fails."""
        command = self.gcloud(*words, alpha=alpha)
        try:
            status = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
        except OSError as error:  # memory may lack for a moment, or gcloud while it is updated
            raise Failed(f"gcloud cannot be started ({error.strerror}): try again.") from None
        if status:
            raise Failed(f"gcloud could not {words[1]} {self.name}: see above.")

    def ask(self, *words: str, timeout: float | None = None) -> Done[str]:
        """Run gcloud, and return what it prints.

        Its status is 124 if it takes longer than `timeout`, and 126 if it cannot be started.
        """
        command = self.gcloud(*words)
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "errors": "replace"}
        try:
            return subprocess.run(command, capture_output=True, timeout=timeout, **how)
        except subprocess.TimeoutExpired:
            return Done(command, 124, "", f"no answer within {timeout:.0f} s")
        except OSError as error:
            return Done(command, 126, "", f"gcloud cannot be started ({error.strerror})")

    def describe(self, what: str) -> dict[str, Any]:
        """Return what gcloud reports of the tpu-vm or queued-resources of this name, {} if none."""
        words = (what, "describe", self.name, "--format=json")
        done = self.ask(*words, timeout=self.numbers["TPU_SSH_SECONDS"])
        if done.returncode:
            if re.search("NOT_FOUND|was not found", done.stderr):
                return {}
            raise Failed(f"gcloud cannot describe the {what} {self.name}: {why(done)}")
        return json.loads(done.stdout)

    def look(self) -> None:
        """Read the properties of the slice."""
        about = self.describe("tpu-vm")
        self.state = about.get("state", "MISSING")
        self.workers = len(about.get("networkEndpoints", []))
        if about:
            how = about.get("schedulingConfig", {})
            self.kind = {"type": about["acceleratorType"], "runtime": about["runtimeVersion"]}
            # gcloud's --preemptible is the older name of --spot, with the same quota.
            self.kind["spot"] = bool(how.get("spot") or how.get("preemptible"))
            self.kind["reserved"] = bool(how.get("reserved"))
            self.kind["queued"] = "queuedResource" in about
            created = re.sub(r"\.\d+|Z$", "", about.get("createTime", "1970-01-01T00:00:00Z"))
            utc = datetime.timezone.utc
            self.created = datetime.datetime.fromisoformat(created).replace(tzinfo=utc).timestamp()

    def look_ready(self) -> None:
        """Read its properties; raise Failed if nothing can run on it now."""
        self.look()
        if self.state == "MISSING":
            create = f"{self.call('create')} TYPE"
            raise Failed(f"the slice {self.name} does not exist in {self.zone}: {create}.")
        if self.state != "READY":
            raise Failed(f"{self}, so not READY: wait, or {self.call('delete')}.")

    def queue_state(self) -> str:
        """Read the request of this name, and return its state, MISSING if there is none."""
        self._request = self.describe("queued-resources")
        return self._request.get("state", {}).get("state", "MISSING")

    def requested_type(self) -> str:
        """Return the type that the request read asks for, "" if gcloud does not say it."""
        nodes = self._request.get("tpu", {}).get("nodeSpec", [])
        return next((node.get("node", {}).get("acceleratorType", "") for node in nodes), "")

    def failure(self) -> str:
        """Return why the request read has failed, "" if gcloud does not say it."""
        data = self._request.get("state", {}).get("failedData", {})
        reason = data.get("error", {}).get("message", "")
        return f" ({reason.rstrip('.')})" if reason else ""

    def request(self, kind: dict[str, Any]) -> None:
        """Ask for the slice in the queue, and do not wait. `kind` has the arguments of `create`.

        With `flex`, a duration, it is a flex-start slice, which ends after that.
        """
        options = [*self.create_options(kind), f"--node-id={self.name}", "--async"]
        if limit := self.settings.get("TPU_QUEUE_FOR"):
            options.append(f"--valid-until-duration={limit}")
        options.append(f"--runtime-version={self.runtime_of(kind)}")
        flex = kind.get("flex")
        if flex:
            options += ["--provisioning-model=flex-start", f"--max-run-duration={flex}"]
        self.change("queued-resources", "create", self.name, *options, alpha=bool(flex))

    def runtime_of(self, kind: dict[str, Any]) -> str:
        """Return the image of the workers of a kind of slice; raise Failed if it is not known."""
        images = [image for start, image in RUNTIMES.items() if kind["type"].startswith(start)]
        runtime = kind.get("runtime") or self.settings.get("TPU_RUNTIME") or [*images, ""][0]
        if not runtime and kind["type"].startswith("tpu7x-"):
            place = "of GKE or Compute Engine, not of this API: docs/pods.md"
            raise Failed(f"{kind['type']} is a slice {place}.")
        if not runtime:
            unknown = f"the runtime of {kind['type']!r} is not known"
            raise Failed(f"{unknown}: set TPU_RUNTIME (gcloud compute tpus versions list).")
        return runtime

    def create_options(self, kind: dict[str, Any]) -> list[str]:
        """Return the flags of gcloud that both ways to create a slice have."""
        options = [f"--accelerator-type={kind['type']}"]
        options += [f"--{name}" for name in ("spot", "reserved") if kind.get(name)]
        for flag in ("network", "subnetwork", "service-account"):
            if value := self.settings.get(f"TPU_{flag.upper().replace('-', '_')}"):
                options.append(f"--{flag}={value}")
        return options + [f"{flag}s" for flag in self.internal_ip()]

    def drop(self) -> bool:
        """Begin to delete the request with its slice; return whether nothing is left of them."""
        state = self.queue_state()
        if state not in ("MISSING", "DELETING"):
            self.change("queued-resources", "delete", self.name, "--force", "--async")
        return state == "MISSING"

    def internal_ip(self) -> list[str]:
        """Return the flag for a slice without external addresses."""
        return ["--internal-ip"] if is_on(self.settings, "TPU_INTERNAL_IPS") else []

    def ssh(self, worker: int, line: str) -> list[str]:
        """Return the arguments of gcloud that run a command line on a worker."""
        flags = [f"--worker={worker}", *self.internal_ip(), f"--command={line}"]
        return ["tpu-vm", "ssh", self.name, *(f"--ssh-flag={o}" for o in ALIVE), *flags]

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
            done = self.ask("tpu-vm", "scp", *to, *(f"--scp-flag={o}" for o in ALIVE))
        if done.returncode:
            raise Failed(f"~/{path} could not be copied to the workers: {why(done)}")

    def worker_line(self, *words: str, **variables: str) -> str:
        """Return the command line that runs launch/tpu_worker.py in a worker's clone."""
        place = f"~/{self.folder} with a .venv"
        none = f"tpu_worker.py: there is no clone in {place}: {self.call('setup')} first."
        assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        work = [*assignments, ".venv/bin/python", "launch/tpu_worker.py", shlex.join(words)]
        there = f"cd {shlex.quote(self.folder)} 2> /dev/null && test -x .venv/bin/python"
        return f"{there} || {{ echo {shlex.quote(none)} >&2; exit 2; }}; {' '.join(work)}"

    def reports(self) -> list[Report]:
        """Return the state of the run on every worker."""
        answers = self.on_workers(self.worker_line("status"), self.numbers["TPU_SSH_SECONDS"])
        reports = []
        for worker, done in enumerate(answers):
            state, step, text = "unknown", 0, f"does not answer: {why(done)}"
            if answer := REPORT.search(done.stdout):
                state, step, text = answer[1], int(answer[2]), answer[3]
            elif not done.returncode:
                text = f"answers {done.stdout[:80]!r}, not a state and a step: {self.call('setup')}"
            elif "there is no clone" in text:
                state, text = "none", why(done)
            command = re.findall("^command (.+)", done.stdout, re.MULTILINE)
            reports.append(Report(worker, state, step, text, *command[:1]))
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
