"""A fake `gcloud` for the PATH, whose TPU workers are folders and processes of this machine.

with Cloud(folder, worker_environment={"MODEL_DIR": "…"}) as cloud:
    subprocess.run(["python3", "launch/tpu.py", "create", …], env=os.environ | cloud.environment)
    cloud.calls()                      # [["compute", "tpus", "tpu-vm", "create", …], …]
    cloud.preempt("ro")                # ends its processes and sets its state to PREEMPTED
    cloud.silence("ro", 2)             # worker 2 rejects ssh
    cloud.queue_ends("ro", "FAILED")   # its request never becomes ACTIVE
    cloud.refuse("v6e-16")             # there is no quota for this type
    cloud.close("us-east5-z")          # there is no such zone
    cloud.write("weather", [[0, 3600, "v6e-16", "us-east5-a"]])    # when there is capacity, of what

Each worker has a home of its own and TPU_WORKER_ID. Commands, flags, printed formats and errors are
those of gcloud 528 as far as the launch scripts need them; any other flag is rejected as gcloud
rejects it.
"""

import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

UTC = datetime.UTC
MARK = "GCLOUD_STAND_IN_WORKER"
_MADE = "accelerator-type zone network subnetwork service-account labels metadata"
_MADE += " internal-ips! spot! reserved! async! project quiet!"
_SSH = "zone worker internal-ip! ssh-flag project quiet!"
# Flags by command; those with a ! have no value.
FLAGS = {
    "tpu-vm create": f"{_MADE} version",
    "tpu-vm ssh": f"{_SSH} command",
    "tpu-vm scp": "zone worker internal-ip! scp-flag recurse! compress! project quiet!",
    "tpu-vm describe": "zone format project quiet!",
    "tpu-vm delete": "zone async! project quiet!",
    "queued-resources create": f"{_MADE} runtime-version node-id valid-until-duration",
    "queued-resources describe": "zone format project quiet!",
    "queued-resources delete": "zone async! force! project quiet!",
}
FLEX = "provisioning-model max-run-duration"  # flags of `gcloud alpha` alone
ALPHA_FLAGS = {"queued-resources create": f"{FLAGS['queued-resources create']} {FLEX}"}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Refused(Exception):
    """The error that gcloud prints before it exits with 1."""


class Cloud:
    """Slices and requests, kept as files in `folder`, which every fake `gcloud` reads."""

    def __init__(self, folder, worker_environment=None, workers=4):
        self.folder = pathlib.Path(folder)
        self._settings = {"workers": workers, "environment": worker_environment or {}}

    def __enter__(self):
        binaries = self.folder / "bin"
        binaries.mkdir(parents=True)
        gcloud = binaries / "gcloud"
        gcloud.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} "$@"\n')
        gcloud.chmod(0o755)
        # Sockets have short paths.
        self._settings["sockets"] = tempfile.mkdtemp(prefix="pod-", dir="/tmp")
        self.write("settings", self._settings)
        self.environment = {
            "GCLOUD_STAND_IN": str(self.folder),
            "PATH": f"{binaries}:{os.environ['PATH']}",
        }
        return self

    def __exit__(self, *_):
        self.end_processes(str(self.folder))
        shutil.rmtree(self._settings["sockets"], ignore_errors=True)

    # --- what tests look at and do

    def calls(self, command=""):
        """Return the calls so far that begin with `command`, such as "tpu-vm create"."""
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        calls = [[word for word in json.loads(line) if word != "alpha"] for line in lines]
        beginning = ["compute", "tpus", *command.split()]
        flags_last = lambda call: sorted(call, key=lambda word: word.startswith("--"))
        return [c for c in map(flags_last, calls) if c[: len(beginning)] == beginning]

    def home(self, name, worker):
        return self.folder / "slices" / name / str(worker)

    def preempt(self, name, state="PREEMPTED"):
        about = self.read(f"slices/{name}/about")
        self.write(f"slices/{name}/about", about | {"state": state})
        self.note("taken", name)
        self.end_processes(str(self.folder / "slices" / name))

    def silence(self, name, worker):
        (self.home(name, worker) / ".silent").touch()

    def queue_ends(self, name, state):
        """Set the state that a request reaches at last."""
        self.change(queue_ends=self.read("settings").get("queue_ends", {}) | {name: state})

    def refuse(self, kind):
        self.change(refused=[*self.read("settings").get("refused", []), kind])

    def close(self, zone):
        """Let a zone be one that does not exist, or that the project may not use."""
        self.change(closed=zone)

    def change(self, **settings):
        """Change settings: `slow` commands' seconds, a `warning` of each, the `age` of slices."""
        self.write("settings", self.read("settings") | settings)

    def left(self):
        """Return the names of all slices and requests that exist."""
        slices = {path.parent.name for path in self.folder.glob("slices/*/about.json")}
        return slices | {path.stem for path in self.folder.glob("queue/*.json")}

    def now(self):
        """Return the time in seconds, of the file clock.json if a test has made one."""
        return self.read("clock") or time.time()

    def capacity(self, name):
        """Return until when a request may have its slice now, by weather.json; None: it waits."""
        about, now = self.read(f"queue/{name}"), self.now()
        for start, end, kind, zone in self.read("weather"):
            if (kind, zone) == (about["accelerator-type"], about["zone"]) and start <= now < end:
                return end
        return None

    def note(self, event, name):
        """Write down when a slice is granted, taken or deleted."""
        with open(self.folder / "ledger.jsonl", "a") as ledger:
            ledger.write(json.dumps([self.now(), event, name]) + "\n")

    def times(self, event, name):
        """Return when a slice was granted, taken or deleted."""
        path = self.folder / "ledger.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [time for time, *what in map(json.loads, lines) if what == [event, name]]

    def end_flex(self):
        """Delete the flex-start slices whose time is over; their requests become SUSPENDED."""
        for path in self.folder.glob("queue/*.json"):
            slice = self.read(f"slices/{path.stem}/about")
            if slice and slice.get("ends") and self.now() >= slice["ends"]:
                self.tpu_vm_delete({}, path.stem)
                self.write(f"queue/{path.stem}", self.read(f"queue/{path.stem}") | {"over": True})

    def end_processes(self, beginning):
        """End the processes of all workers whose homes begin with a path."""
        mark, is_over = f"{MARK}={beginning}".encode(), False
        while not is_over:  # until none has begun another one meanwhile, and all have ended
            is_over = True
            for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
                with contextlib.suppress(OSError):
                    if any(part.startswith(mark) for part in path.read_bytes().split(b"\0")):
                        is_over = False
                        os.kill(int(path.parent.name), signal.SIGKILL)

    # --- what is kept

    def read(self, name):
        path = self.folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def write(self, name, content):
        path = self.folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(content))
        new.replace(path)  # at once, for a `gcloud` that reads it meanwhile

    def slice(self, name):
        about = self.read(f"slices/{name}/about")
        if about is None:
            raise Refused(f"NOT_FOUND: Resource 'projects/p/nodes/{name}' was not found.")
        return about

    # --- commands

    def make(self, name, flags, runtime, queue=None):
        if self.read(f"slices/{name}/about"):
            raise Refused("ALREADY_EXISTS: Resource already exists.")
        workers = self.read("settings")["workers"]
        about = {"state": "READY", "type": flags["accelerator-type"], "runtime": runtime}
        for worker in range(workers):
            (self.home(name, worker) / "tmp").mkdir(parents=True)
        about |= {"spot": "spot" in flags, "reserved": "reserved" in flags}
        created = self.now() - self.read("settings").get("age", 0)
        about |= {"queue": queue, "workers": workers, "created": created, "zone": flags["zone"]}
        if parts := re.findall(r"(\d+)([smhd])", flags.get("max-run-duration", "")):
            about["ends"] = created + sum(int(n) * UNITS[unit] for n, unit in parts)
        if queue and self.read("weather") is not None:
            about["taken"] = self.capacity(queue)
        self.note("granted", name)
        self.write(f"slices/{name}/about", about)

    def tpu_vm_create(self, flags, name):
        self.make(name, flags, flags["version"])

    def tpu_vm_describe(self, flags, name):
        about = self.slice(name)
        if about["zone"] != flags["zone"]:
            raise Refused(f"NOT_FOUND: Resource 'projects/p/nodes/{name}' was not found.")
        description = {
            "state": about["state"],
            "acceleratorType": about["type"],
            "runtimeVersion": about["runtime"],
            "schedulingConfig": {
                key: True for key in ("spot", "reserved", "preemptible") if about.get(key)
            },
            "createTime": f"{datetime.datetime.fromtimestamp(about['created'], UTC):%FT%T.%f}123Z",
            "networkEndpoints": [{"ipAddress": f"10.0.0.{n}"} for n in range(about["workers"])],
        }
        queue = {"queuedResource": f"projects/p/queuedResources/{about['queue']}"}
        print(json.dumps(description | (queue if about["queue"] else {})))

    def tpu_vm_delete(self, flags, name):
        self.slice(name)
        self.note("deleted", name)
        gone = tempfile.mkdtemp(dir=self.folder)  # where nothing begins any more
        (self.folder / "slices" / name).rename(f"{gone}/{name}")
        self.end_processes(str(self.folder / "slices" / name))
        shutil.rmtree(gone)

    def queued_resources_create(self, flags, name):
        if self.read(f"queue/{name}"):
            raise Refused("ALREADY_EXISTS: Resource already exists.")
        if flags["accelerator-type"] in self.read("settings").get("refused", []):
            limit = "TPUPerProjectPerZoneForTPUAPI"
            why = f"RESOURCE_EXHAUSTED: Quota limit '{limit}' has been exceeded."
            raise Refused(f"{why} Limit: 0 in zone {flags['zone']}.")
        self.write(f"queue/{name}", {"state": "WAITING_FOR_RESOURCES", "asked": 0, **flags})

    def queued_resources_describe(self, flags, name):
        """Describe a request; each call advances its state until its slice exists."""
        about = self.read(f"queue/{name}")
        if about is None:
            raise Refused(f"NOT_FOUND: Resource 'queuedResources/{name}' was not found.")
        if about.get("deleting"):
            (self.folder / f"queue/{name}.json").unlink()
            print(json.dumps({"state": {"state": "DELETING"}}))
            return
        ends = self.read("settings").get("queue_ends", {}).get(name, "ACTIVE")
        states = ("WAITING_FOR_RESOURCES", "PROVISIONING", ends)
        about["state"] = states[min(about["asked"], 2)]
        if self.read("weather") is not None and self.read(f"slices/{name}/about") is None:
            about["state"] = "ACTIVE" if self.capacity(name) else "WAITING_FOR_RESOURCES"
        is_there = self.read(f"slices/{name}/about") is not None
        if not is_there and about["state"] == "ACTIVE" and not about.get("over"):
            self.make(about["node-id"], about, about["runtime-version"], queue=name)
        self.write(f"queue/{name}", about | {"asked": about["asked"] + 1})
        failed = {"failedData": {"error": {"code": 8, "message": "There is no more capacity."}}}
        gone = about.get("over") or (
            about["state"] == "ACTIVE" and self.slice(name)["state"] != "READY"
        )
        state = "SUSPENDED" if gone else about["state"]
        node = {"nodeId": about["node-id"], "node": {"acceleratorType": about["accelerator-type"]}}
        state = {"state": state} | (failed if state == "FAILED" else {})
        print(json.dumps({"state": state, "tpu": {"nodeSpec": [node]}}))

    def queued_resources_delete(self, flags, name):
        there = self.read(f"slices/{name}/about")
        if there and "force" not in flags:
            raise Refused("FAILED_PRECONDITION: the queued resource has nodes.")
        if there:
            self.tpu_vm_delete({}, name)
        if "async" in flags:
            self.write(f"queue/{name}", self.read(f"queue/{name}") | {"deleting": True})
        else:
            (self.folder / f"queue/{name}.json").unlink()

    def workers(self, flags, name):
        about = self.slice(name)
        if about["state"] != "READY":
            raise Refused(f"TPU VM {name} is in state {about['state']}.")
        worker_flag = flags.get("worker", "0")
        chosen = range(about["workers"]) if worker_flag == "all" else [int(worker_flag)]
        for worker in chosen:
            if (self.home(name, worker) / ".silent").exists():
                raise Refused("[/usr/bin/ssh] exited with return code [255].")
        return chosen

    def tpu_vm_ssh(self, flags, name):
        running = []
        for worker in self.workers(flags, name):
            print(f"SSH: Attempting to connect to worker {worker}...", file=sys.stderr)
            home, settings = self.home(name, worker), self.read("settings")
            sockets = pathlib.Path(settings["sockets"]) / f"{name}{worker}"
            sockets.mkdir(exist_ok=True)
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "TMPDIR": str(home / "tmp"),
                "TMUX_TMPDIR": str(sockets),
                "TPU_WORKER_ID": str(worker),
                "TPU_WORKERS": str(settings["workers"]),
                "ACCELERATOR_TYPE": self.slice(name)["type"],
                MARK: str(home),
                **settings["environment"],
            }
            command = ["bash", "-c", flags["command"]]
            running.append(subprocess.Popen(command, cwd=home, env=environment))
        return max(process.wait() for process in running)

    def tpu_vm_scp(self, flags, source, target):
        name, _, path = target.partition(":")
        for worker in self.workers(flags, name):
            place = self.home(name, worker) / path
            mode = place.stat().st_mode if place.exists() else None
            shutil.copy(source, place)
            if mode:
                place.chmod(mode)  # scp changes no mode of what is there


def parse(words):
    """Return (command, positional arguments, {flag: value}); reject what gcloud rejects."""
    words = [word for word in words if word != "--quiet" and not word.startswith("--project=")]
    is_alpha = words[:1] == ["alpha"]
    words = words[is_alpha:]
    command = " ".join(words[2:4])
    known = (FLAGS | ALPHA_FLAGS) if is_alpha else FLAGS
    takes_no_value = {
        flag.rstrip("!"): flag.endswith("!") for flag in known.get(command, "").split()
    }
    places, flags = [], {}
    for word in words[4:]:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            places.append(word)
        elif name not in takes_no_value or bool(equals) == takes_no_value[name]:
            raise SystemExit(f"ERROR: (gcloud) unrecognized arguments: {word}")
        else:
            flags[name] = value
    if words[:2] != ["compute", "tpus"] or command not in FLAGS or "zone" not in flags:
        raise SystemExit(f"ERROR: (gcloud) Invalid choice or no --zone: {' '.join(words)}")
    if not re.fullmatch(r"[a-z]+-[a-z]+[0-9]+-[a-z]", flags["zone"]):
        raise SystemExit(f"ERROR: (gcloud) {flags['zone']} is no zone")
    return command, places, flags


def main():
    cloud = Cloud(os.environ["GCLOUD_STAND_IN"])
    with open(cloud.folder / "calls.jsonl", "a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    command, places, flags = parse(sys.argv[1:])
    faults = cloud.read("faults") or {}
    if faults.get(command, 0) > 0:
        cloud.write("faults", faults | {command: faults[command] - 1})
        raise SystemExit("ERROR: (gcloud) UNAVAILABLE: The service is currently unavailable.")
    cloud.end_flex()
    try:
        if flags["zone"] == cloud.read("settings").get("closed"):
            where = f"Location {flags['zone']} is not found or access is unauthorized."
            raise Refused(f"PERMISSION_DENIED: {where}")
        sys.stderr.write(cloud.read("settings").get("warning", ""))
        time.sleep((cloud.read("settings").get("slow") or {}).get(command, 0))
        return getattr(cloud, command.replace(" ", "_").replace("-", "_"))(flags, *places)
    except Refused as error:
        raise SystemExit(f"ERROR: (gcloud.compute.tpus.{command}) {error}") from None
    except KeyboardInterrupt:  # which it keeps for itself, as gcloud does
        raise SystemExit("Command killed by keyboard interrupt") from None


if __name__ == "__main__":
    sys.exit(main())
