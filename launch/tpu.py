#!/usr/bin/env python3
"""Train on a TPU slice, from this machine, by gcloud: python3 launch/tpu.py COMMAND NAME ZONE …

    create NAME ZONE TYPE         create a slice, of type v4-32 or so; --spot, --queued, --reserved
    setup NAME ZONE               give every worker Python, a clone, .venv and HF_TOKEN; repeatable
    run NAME ZONE SCRIPT …        pull, and start a launch script with its flags on every worker;
                                  --send copies what is not committed
    supervise NAME ZONE SCRIPT …  watch the run, and start it again if it or its slice is lost;
                                  --any v6e-16,v4-32 takes the first slice that is granted
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
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

if os.name == "nt" or sys.version_info < (3, 9):
    here = f"Python {sys.version.split()[0]} on {sys.platform}"
    needs = "take 3.9 or newer on Linux or macOS; on Windows, in WSL"
    sys.stderr.write(f"tpu.py: this is {here}: {needs}.\n")
    sys.exit(2)

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from launch import commit, pool  # noqa: E402
from launch.commit import Failed  # noqa: E402
from launch.slices import GONE, NOISE, Report, Slice, is_on, need_all, safe, say, say_when, why  # noqa: E402

# Secrets go to the workers as files, since every list of processes shows the arguments of commands.
TOKEN, LOGIN = ".cache/huggingface/token", ".config/t5x/git_login"
# Variables that cross ssh with a run, besides those that TPU_PASS names.
PASSED = ["MODEL_DIR"]
SENT = "runs/.pod/sent.tgz"  # what `--send` copies, in a worker's clone
ENDS = (signal.SIGTERM, signal.SIGHUP)  # of this process, and of its terminal
SAVE_SECONDS = 120  # before the end of a flex-start slice its run saves
ZONE = re.compile("[a-z]+-[a-z]+[0-9]+-[a-z0-9]+")


def read_settings() -> dict[str, str]:
    """Return the environment, and what the shell script launch/env adds to it."""
    file, variables = ROOT / "launch/env", {}
    if file.exists():
        if b"\r\n" in file.read_bytes():
            reason = "launch/env has the line ends of Windows, which become part of the values"
            raise Failed(f"{reason}: save it with those of Linux (LF).")
        show = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
        script = f"set -a; source {shlex.quote(str(file))}; {shlex.join(show)}"
        done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True)
        if done.returncode:
            wrong = f"launch/env is a shell script that fails: {why(done).rstrip('.')}"
            raise Failed(f"{wrong}: write NAME=value, and quote a value that has spaces.")
        if done.stderr:
            say(done.stderr.rstrip("\n"), sys.stderr)
        variables = json.loads(done.stdout.splitlines()[-1])
    return {**variables, **os.environ}


# --- commands


def create(
    tpu: Slice, type: str, spot: bool, queued: bool, reserved: bool, runtime: str = ""
) -> None:
    """Create a slice; `queued` waits for it, also for an earlier request."""
    kind = {"type": pool.gcloud_type(type), "spot": spot, "reserved": reserved, "runtime": runtime}
    image = tpu.runtime_of(kind)
    tpu.look()
    queue = tpu.queue_state() if queued else "MISSING"
    if tpu.state != "MISSING" and (tpu.state != "CREATING" or queue == "MISSING"):
        raise Failed(f"{tpu}: if it is yours, use it, or {tpu.call('delete')}; else name another.")
    try:
        if not queued:
            options = tpu.create_options(kind)
            tpu.change("tpu-vm", "create", tpu.name, f"--version={image}", *options)
        elif queue == "MISSING":
            tpu.request(kind)
        elif (requested := tpu.requested_type()) in ("", kind["type"]):
            say(f"A request for {tpu.name} exists already; waiting for it.")
        else:
            other = f"a request for {tpu.name} asks for {requested}, not for {kind['type']}"
            raise Failed(f"{other}: take another name, or {tpu.call('delete')}.")
        if queued:
            wait_in_queue(tpu)
    except KeyboardInterrupt:
        say_when(f"{tpu.name} may be left, and cost money: {tpu.call('delete')}.")
        raise
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
        if state in (*pool.ENDED, "DELETING", "MISSING"):
            again = f"{tpu.call('delete')}, then ask again"
            ended = f"is {state} and gives no slice{tpu.failure()}"
            raise Failed(f"the request for {tpu.name} {ended}: {again}.")
        if state != "ACTIVE":
            tpu.clock.sleep(tpu.numbers["TPU_POLL_SECONDS"])


def setup(tpu: Slice) -> None:
    """Prepare all workers in the same way, by launch/tpu_worker_setup.sh."""
    tpu.look_ready()
    first, tries = tpu.ssh(0, "true"), 1
    # A new slice rejects ssh for a while; the first connection also creates your key.
    while (done := tpu.ask(*first, timeout=tpu.numbers["TPU_SSH_SECONDS"])).returncode:
        if tries == 5:
            raise Failed(f"worker 0 of {tpu.name} rejects ssh: {why(done)}")
        tries += 1
        tpu.clock.sleep(min(15, tpu.numbers["TPU_POLL_SECONDS"]))
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


def start(
    tpu: Slice, script: str, flags: list[str], archive: bytes, ends: float | None = None
) -> None:
    """Start a checked run on all workers, with the files of an archive over the last push.

    `ends` is when the slice ends, in seconds since 1970, if that is known: the run saves before.
    """
    answers = tpu.on_workers(tpu.worker_line("check"))
    head = tpu.common_head(answers, "nothing was started: a run cannot start")
    if archive:
        tpu.send(archive, f"{tpu.folder}/{SENT}")
        answers = tpu.on_workers(tpu.worker_line("unpack"))
        need_all(answers, "nothing was started: what is not committed could not be unpacked")
        head += " with files that are not committed"
    names = {*PASSED, *tpu.settings.get("TPU_PASS", "").split()} - {"HF_TOKEN"}
    variables = {name: tpu.settings[name] for name in sorted(names) if tpu.settings.get(name)}
    if ends:
        variables["TPU_SAVE_AT"] = str(ends - SAVE_SECONDS)
    answers = tpu.on_workers(tpu.worker_line("start", script, *flags, **variables))
    need_all(answers, f"{tpu.call('stop')} ends the others: {script} could not be started")
    say(f"{script} is started on {tpu.workers} workers of {tpu.name} at commit {head}.")


def check_run(tpu: Slice, script: str, flags: list[str], is_recreated: bool = False) -> None:
    """Require a launch script, and a MODEL_DIR that all workers share and that outlives the slice.

    An absolute path may be a mounted folder, so it gives only a warning, as any folder does where
    one worker runs on a slice that is not created again.
    """
    if not (script.endswith(".sh") and (ROOT / script).is_file()):
        example = "name one, such as launch/ro_t5x_base.sh"
        raise Failed(f"{script!r} is not a launch script of this clone: {example}.")
    for flag in flags:
        if flag.partition("=")[0] in ("--any", "--flex", "--spot", "--reserved"):
            raise Failed(f"{flag} is a flag of supervise, which asks for slices; run takes none.")
    folders = [flag.partition("=")[2] for flag in flags if flag.startswith("--gin.MODEL_DIR=")]
    folder = [tpu.settings.get("MODEL_DIR", ""), *folders][-1].strip().strip("'\"")
    if "://" in folder or folder[:1] in ("%", "@"):  # % and @ refer to another gin setting
        return
    reason = ""
    if tpu.workers > 1:
        reason = f"{tpu.workers} workers need one folder that all of them can write to"
    elif is_recreated:
        reason = "a slice that is created again has an empty disk"
    if reason and not folder.startswith("/"):
        mounted = "(or to a folder that is mounted on every worker)"
        raise Failed(f"MODEL_DIR is {folder!r} and {reason}: set it to gs://bucket/run {mounted}.")
    own = "a folder that is not mounted from elsewhere is deleted with the slice"
    say(f"warning: MODEL_DIR is {folder or 'not set'}: {own}.", sys.stderr)


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
                print(safe(text.rstrip("\n")), flush=True)  # ends where nobody reads
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


def supervise(
    tpu: Slice,
    script: str,
    flags: list[str],
    send: bool = False,
    any: str | None = None,
    flex: str | None = None,
    spot: bool = False,
    reserved: bool = False,
    zones: list[str] | None = None,
) -> None:
    """Watch a run until it has finished, and start it again whenever it or its slice is lost.

    With `any`, types of slices, it asks for each of them in each zone, takes the first that is
    granted, and deletes what it has asked for when it ends.
    """
    kinds = {"flex": flex is not None, "spot": spot, "reserved": reserved}
    typed = [f"--{k}" for k in kinds if kinds[k] and not is_on(tpu.settings, f"TPU_{k.upper()}")]
    if typed and any is None:
        raise Failed(f"{typed[0]} needs --any with the types that may be asked for: --any v6e-8.")
    if flex is not None and len(typed) > 1:
        raise Failed(f"a flex-start slice is neither spot nor reserved: leave out {typed[1]}.")
    if any is not None:
        types, zones = any.split(","), zones or [tpu.zone]
        if flex is not None:
            pool.seconds_of(flex)
        check_run(tpu, script, flags, is_recreated=True)
        pool.check(tpu, zones, types)
        archive = unsent_files(tpu, script, flags, send)
        kind = {"spot": spot and not flex, "reserved": reserved and not flex, "flex": flex}
        fitting = pool.fitting_flags(script, flags, types)
        offers = pool.make_offers(tpu, zones, [*fitting], kind, fitting)
        with Supervision(tpu, script, flags, archive, offers) as supervision:
            supervision.take(pool.acquire(offers))
            supervision.watch()
        return
    tpu.look()
    if tpu.state == "MISSING":
        unknown = f"the slice {tpu.name} does not exist in {tpu.zone}, so its type is unknown"
        raise Failed(f"{unknown}: {tpu.call('create')} TYPE.")
    check_run(tpu, script, flags, is_recreated=True)
    Supervision(tpu, script, flags, unsent_files(tpu, script, flags, send)).watch()
    say_when(f"{tpu.name} is left, and costs money: {tpu.call('delete')}.")


class OtherRun(Failed):
    """The slice trains what another command has started."""


class Supervision:
    """The state of a supervised run, and what to do about it."""

    def __init__(
        self,
        tpu: Slice,
        script: str,
        flags: list[str],
        archive: bytes,
        offers: list[pool.Offer] | None = None,
    ):
        self.tpu, self.script, self.flags, self.kind = tpu, script, flags, tpu.kind
        self.archive = archive  # what was not committed at the start
        self.offers = offers or []  # the slices that may take the place of a lost one
        self.fitting: list[str] = []  # flags that fit the run to the type of slice
        self.unwanted: list[Slice] = []  # those of them to delete, which takes a while
        self.is_started = False  # so that what workers report is about this run
        self.has_run = False  # whether the run may be on the slice
        self.reached = self.tries = 0  # the newest step, and the restarts since
        self.doubtful = self.silent = 0  # polls at which workers disagree, or do not respond

    def __enter__(self) -> Supervision:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        """Delete all that was asked for; after Ctrl-C leave the slice that has the run.

        A slice that has another run is left too.
        """
        is_interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        if is_interrupted:  # a terminal says more than once that it closes
            for number in ENDS:
                signal.signal(number, signal.SIG_IGN)
        self.unwanted = [offer.tpu for offer in self.offers]
        is_there = self.has_run and self.tpu.state not in GONE
        if kind is OtherRun:
            self.unwanted.remove(self.tpu)
        elif is_interrupted and is_there:
            self.unwanted.remove(self.tpu)
            left = f"{self.tpu.name} in {self.tpu.zone} and its run are left: the same command"
            say_when(f"{left} goes on, or {self.tpu.call('delete')}.")
        try:
            while self.unwanted:
                self.unwanted = pool.clean(self.unwanted)
                if self.unwanted:
                    self.tpu.clock.sleep(self.tpu.numbers["TPU_POLL_SECONDS"])
        except KeyboardInterrupt:
            for tpu in self.unwanted:
                say_when(f"{tpu.name} may be left, and cost money: {tpu.call('delete')}.")
            raise

    def watch(self) -> None:
        """Watch the run until nothing is left to do."""
        is_over = False
        say_when(f"{self.tpu}. {shlex.join([self.script, *self.flags])} is supervised.")
        while not is_over:
            if self.look() == "READY":
                is_over = self.judge()
            elif self.tpu.state in GONE:  # other states lead to READY or to one of these
                is_over = self.again(f"the slice {self.tpu.name} is {self.tpu.state}")
            self.unwanted = pool.clean(self.unwanted)
            if not is_over:
                self.tpu.clock.sleep(self.tpu.numbers["TPU_POLL_SECONDS"])

    def take(self, offer: pool.Offer) -> None:
        """Train on a slice that has been granted; the others become unwanted."""
        self.tpu, self.kind = offer.tpu, offer.kind
        self.fitting = offer.flags
        self.unwanted = pool.clean([other.tpu for other in self.offers if other is not offer])
        self.look()

    @property
    def ends(self) -> float | None:
        """When a flex-start slice ends, in seconds since 1970; None for another."""
        flex = self.kind.get("flex")
        return self.tpu.created + pool.seconds_of(flex) if flex else None

    @property
    def is_ending(self) -> bool:
        """Whether the run has saved because its slice ends, or soon will."""
        return self.ends is not None and self.tpu.clock.time() >= self.ends - SAVE_SECONDS

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
            if not self.is_started:
                self.refuse_other(reports)
            self.is_started |= "training" in states
            self.has_run |= "training" in states
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
        elif reports[0].state == "finished" and "training" not in states:
            say_when(f"{self.tpu.name} has finished: {reports[0].text}")
            return True
        elif "refused" in states:
            refusal = next(report for report in reports if report.state == "refused")
            raise Failed(f"the trainer rejects its configuration: {refusal}")
        else:
            return self.again(problem, remake="unknown" in states or self.is_ending)
        return False

    def refuse_other(self, reports: list[Report]) -> None:
        """Raise OtherRun if the workers train another script or recipe; its flags may differ."""
        own, *others = (
            command.partition(" -")[0]
            for command in (" ".join([self.script, *self.flags]), *(r.command for r in reports))
        )
        name = lambda word: pathlib.PurePath(word).name.removesuffix(".gin")
        names = lambda command: [*map(name, command.split())]
        if other := next((c for c in others if c and names(c) != names(own)), ""):
            where = f"{self.tpu.name} trains {other}, not {own}"
            raise OtherRun(f"{where}: {self.tpu.call('stop')}, or take another slice.")

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
        tpu.clock.sleep(seconds)
        is_asked = self.look() == "READY" and self.is_started
        if is_asked and any(report.state == "stopped" for report in tpu.reports()):
            return self.was_stopped()
        self.succeeds(self.start, remake)
        self.doubtful = self.silent = 0
        return False

    def start(self, remake: bool = False) -> None:
        """Start the run, on a new slice if there is none, or with `remake`."""
        tpu = self.tpu
        is_lost = tpu.state in GONE or (remake and tpu.state == "READY")
        if is_lost and self.offers:
            self.has_run = False
            while not tpu.drop():  # it counts against the quota of the next
                tpu.clock.sleep(tpu.numbers["TPU_POLL_SECONDS"])
            self.take(pool.acquire(self.offers))
            tpu = self.tpu
        elif is_lost:
            say_when(f"{tpu}; it is created again as it was.")
            # A request that still waits keeps its place in the queue.
            if tpu.state != "MISSING" or tpu.queue_state() in pool.ENDED:
                delete(tpu, yes=True)
            create(tpu, **self.kind)
        elif self.tries:
            self.succeeds(stop, tpu, True)
        setup(tpu)
        self.has_run = True
        # The words of a script, such as a recipe's name, come before all flags.
        words = [*itertools.takewhile(lambda word: not word.startswith("-"), self.flags)]
        flags = [*words, *self.fitting, *self.flags[len(words) :]]
        start(tpu, self.script, flags, self.archive, self.ends)
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


def add_create_options(
    options: Parser, settings: dict[str, str], names: Iterable[str], when: str = ""
) -> None:
    """Add flags of CREATE_OPTIONS, which are set where TPU_SPOT and the like are."""
    for name in names:
        default, about = is_on(settings, f"TPU_{name.upper()}"), when + CREATE_OPTIONS[name]
        options.add_argument(f"--{name}", action="store_true", default=default, help=about)


def run_options(settings: dict[str, str], do: Any) -> Parser:
    """Return the parser of the options of `run` or `supervise`, before or after the script."""
    options = Parser(add_help=False, allow_abbrev=False)
    about = "copy what is not committed to all workers, over the last push"
    options.add_argument("--send", action="store_true", help=about)
    if do is supervise:
        about = "types of slices, such as v6e-16,v6e-8,v4-32: ask for each in each zone, take the "
        about += "first that is granted, and delete what was asked for at the end"
        options.add_argument("--any", metavar="TYPES", help=about)
        about = (
            "with --any: flex-start slices that end after this, 7d at most; the run saves before"
        )
        options.add_argument("--flex", metavar="24h", help=about)
        add_create_options(options, settings, ("spot", "reserved"), "with --any: ")
    return options


def parser(settings: dict[str, str]) -> argparse.ArgumentParser:
    """Return the parser of the command line: `do` is a function, the rest are its arguments."""
    parser = Parser("tpu.py", usage=argparse.SUPPRESS, description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    parsers = {}
    for do in (create, setup, run, supervise, status, logs, stop, delete):
        about = (do.__doc__ or "").replace("`", "")
        parents = [run_options(settings, do)] if do in (run, supervise) else []
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
    add_create_options(parsers[create], settings, CREATE_OPTIONS)
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


def interrupt(*_: object) -> NoReturn:
    """Take the end of the terminal, or of this process, as Ctrl-C."""
    raise KeyboardInterrupt


def main() -> int:
    """Run a command, and return the exit status."""
    for number in ENDS:
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores it
            signal.signal(number, interrupt)
    settings, words = read_settings(), sys.argv[1:]
    if not words:
        sys.stderr.write(__doc__ or "")
        raise Failed("give a COMMAND of these.")
    slice = [settings.get("TPU_NAME", ""), settings.get("TPU_ZONE", "")]
    if all(slice) and not (len(words) > 2 and ZONE.match(words[2])):
        words[1:1] = slice
    arguments = vars(parser(settings).parse_args(words))
    if "flags" in arguments:  # those of ours may stand after the script too
        options = run_options(settings, arguments["do"])
        own, arguments["flags"] = options.parse_known_args(arguments["flags"])
        arguments.update({k: value for k, value in vars(own).items() if value not in (None, False)})
    zones = arguments["zone"].split(",")
    if not all(map(ZONE.fullmatch, zones)):
        raise Failed(
            f"{arguments['zone']!r} is not a zone such as us-central2-b: NAME ZONE come first."
        )
    if len(zones) > 1 and arguments.get("any") is None:
        raise Failed(f"{arguments['zone']} are several zones, which supervise --any takes only.")
    if not shutil.which("gcloud"):
        raise Failed("gcloud is not installed: see https://cloud.google.com/sdk/docs/install.")
    do, _ = arguments.pop("do"), arguments.pop("zone")
    tpu = Slice(arguments.pop("name"), zones[0], settings)
    if do is supervise:
        arguments["zones"] = zones
    return do(tpu, **arguments) or 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        say(f"tpu.py: {error}", sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
