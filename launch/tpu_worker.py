"""The worker's side of launch/tpu.py, which calls it by ssh in the worker's clone.

    .venv/bin/python launch/tpu_worker.py COMMAND
        check             check that a run can start, pull, and print the commit
        unpack            put the files that were sent over those of the commit
        undo              take them back
        start SCRIPT …    start a launch script, which outlives the connection
        status            print state, step and description, separated by tabs, and the command
        stop SECONDS      ask the run to save and exit, and wait for its end
        kill              end it at once
        log LINES [-F]    print the run's output

States: none (nothing has run), training, finished, saved (preempted, it has saved and exited),
stopped (by launch/tpu.py), refused (status 2: its configuration is wrong), failed (another status),
lost (it ended without a status: the worker has rebooted).
"""

import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from typing import Any, NoReturn

ROOT = pathlib.Path(__file__).resolve().parents[1]
POD = ROOT / "runs/.pod"
LOCK = POD / "lock"  # held by the process that waits for the run, and freed however that ends
RUN = POD / "run.json"  # `command` and `started`, then `process`, then `status` and `ended`
STOP = POD / "stop"  # exists once the run was asked to stop
OUTPUT = POD / "output.txt"
SENT = POD / "sent.tgz"  # files of the user's clone that are not committed
UNPACKED = POD / "unpacked.json"  # their paths, while they are here


def fail(sentence: str) -> NoReturn:
    """Print a sentence and exit with status 2. launch/tpu.py finds it by the name in front."""
    print(f"tpu_worker.py: {sentence}", file=sys.stderr)
    sys.exit(2)


def read() -> dict[str, Any]:
    """Return the record of the last run, {} if there was none."""
    try:
        return dict(json.loads(RUN.read_text()))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError):
        fail(f"{RUN} is damaged: delete {POD}, then start the run again.")


def write(path: pathlib.Path, content: object) -> None:
    """Replace a record atomically: others may read it meanwhile, or the disk may be full."""
    path.with_suffix(".new").write_text(json.dumps(content))
    path.with_suffix(".new").replace(path)


def is_running() -> bool:
    """Return whether the run has not ended."""
    POD.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def end(send: Callable[[int, int], None], number: signal.Signals, seconds: float) -> bool:
    """Send the run a signal, as soon as its process is known; return whether it ends in time."""
    limit, is_sent = time.monotonic() + seconds, False
    while is_running() and time.monotonic() < limit:
        if not is_sent and (process := read().get("process")):
            is_sent = True
            with contextlib.suppress(ProcessLookupError):
                send(process, number)
        time.sleep(0.1)
    return not is_running()


def check() -> None:
    """Check that a run can start, pull, and print the commit."""
    if is_running():
        fail(f"{read()['command']} is running, started {ago(read()['started'])}: stop it first.")
    undo()
    git = ["git", "-C", str(ROOT)]
    pulled = subprocess.run([*git, "pull", "--quiet", "--ff-only"], capture_output=True, text=True)
    if pulled.returncode:
        reason = "; ".join(map(str.strip, pulled.stderr.partition("\n\n")[0].splitlines()))
        fail(f"git pull failed ({reason}): undo what was changed in this clone, or delete it.")
    print("head", subprocess.check_output([*git, "rev-parse", "--short=12", "HEAD"], text=True))


def unpack() -> None:
    """Put the files that were sent over those of the commit."""
    with tarfile.open(SENT) as archive:
        write(UNPACKED, archive.getnames())
        archive.extractall(ROOT, filter="data")


def undo() -> None:
    """Take back what `unpack` has put here, so that git can pull."""
    if not UNPACKED.exists():
        return
    restore = ["git", "-C", str(ROOT), "checkout", "--quiet", "HEAD", "--"]
    for path in json.loads(UNPACKED.read_text()):
        if subprocess.run([*restore, path], stderr=subprocess.DEVNULL).returncode:
            (ROOT / path).unlink(missing_ok=True)  # the commit does not have it
    UNPACKED.unlink()


def start(*command: str) -> None:
    """Start a launch script, and let a process that outlives the connection wait for its end."""
    if not (ROOT / command[0]).is_file():
        fail(f"{command[0]} does not exist in {ROOT}: commit and push it, or name another.")
    POD.mkdir(parents=True, exist_ok=True)
    lock = LOCK.open("a")  # the process below keeps it open
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fail("another run has just been started: stop it first.")
    STOP.unlink(missing_ok=True)
    if OUTPUT.exists():
        OUTPUT.replace(POD / "output.before.txt")
    run = {"command": " ".join(command), "started": time.time()}
    write(RUN, run)
    if os.fork():
        return
    os.setsid()
    # The launch scripts exec the trainer, so that this process becomes the trainer's. It begins a
    # group of processes, for `kill`.
    how: dict[str, Any] = {"cwd": ROOT, "stdin": subprocess.DEVNULL, "start_new_session": True}
    with OUTPUT.open("wb") as output:
        script = subprocess.Popen(["bash", *command], stdout=output, stderr=output, **how)
        for descriptor in (0, 1, 2):  # let go of the connection
            os.dup2(output.fileno(), descriptor)
    run["process"] = script.pid
    write(RUN, run)
    try:
        status = script.wait(seconds_left())
    except subprocess.TimeoutExpired:  # the slice ends soon
        script.terminate()
        status = script.wait()
    write(RUN, {**run, "status": 128 - status if status < 0 else status, "ended": time.time()})


def seconds_left() -> float | None:
    """Return the seconds until the run has to save since its slice ends, None if it does not."""
    at = os.environ.get("TPU_SAVE_AT")
    return max(0.0, float(at) - time.time()) if at else None


def stop(seconds: str) -> None:
    """Ask the run to save and exit, and wait for its end."""
    # Also marks a run that has failed, since launch/tpu.py may be about to restart it.
    if state()[0] not in ("none", "finished"):
        STOP.touch()
    if not end(os.kill, signal.SIGTERM, float(seconds)):
        fail("the run is still saving, or hangs.")


def kill() -> None:
    """End the run at once."""
    if not end(os.killpg, signal.SIGKILL, 20):
        fail("the run does not end: restart the worker.")


def log(*arguments: str) -> None:
    """Print the end of the run's output."""
    if not OUTPUT.exists():
        fail("nothing has run here yet.")
    os.execvp("tail", ["tail", "-n", *arguments, str(OUTPUT)])


def status() -> None:
    """Print state, step and description, then the command of the run."""
    print(*state(), sep="\t")
    print("command", read().get("command", ""))


def state() -> tuple[str, int, str]:
    """Return state, step and description. Only worker 0 prints steps; others return 0."""
    running, run, text = is_running(), read(), ""  # in this order: the last output is complete
    if OUTPUT.exists():
        with OUTPUT.open("rb") as output:
            output.seek(max(0, OUTPUT.stat().st_size - 200_000))
            text = output.read().decode(errors="replace")
    steps = [("", "0"), *re.findall(r"^(step ([0-9,]+)/.*)", text, re.MULTILINE)]
    line, step = steps[-1][0], int(steps[-1][1].replace(",", ""))
    if not run:
        return "none", 0, "nothing has run here yet"
    code = run.get("status")
    if running:
        name, when = "training", f"started {ago(run['started'])}"
        when = f"last output {ago(OUTPUT.stat().st_mtime)}" if line else when
    elif code is None:
        name, when = "lost", "its process is gone: did the worker reboot?"
    elif code:
        name, line = "refused" if code == 2 else "failed", ["", *text.splitlines()][-1]
        when = f"status {code} {ago(run['ended'])}"
    else:
        is_saved = re.search("^Stopped by .* at step", text, re.MULTILINE)
        name, when = "saved" if is_saved else "finished", f"ended {ago(run['ended'])}"
    if STOP.exists() and not running:
        name = "stopped"
    return name, step, f"{when}  {line}".strip()


def ago(at: float) -> str:
    """Return how long ago a time was: 7s ago, 5m ago, 3h 04m ago."""
    minutes, seconds = divmod(int(time.time() - at), 60)
    if minutes >= 60:
        return f"{minutes // 60}h {minutes % 60:02d}m ago"
    return f"{minutes}m ago" if minutes else f"{seconds}s ago"


if __name__ == "__main__":
    commands = (check, unpack, undo, start, stop, kill, log, status)
    {f.__name__: f for f in commands}[sys.argv[1]](*sys.argv[2:])
