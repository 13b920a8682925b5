"""A simulated week of a grant: `tpu.supervise` with a clock that jumps, over real training.

    python tests/fakes/week.py CLOUD RUN STEPS          # with a user's clone first on PYTHONPATH

Nothing sleeps: the clock jumps to the next poll at which something has changed. A slice that trains
takes a step each `STEP_SECONDS` of this clock, after `START_SECONDS` for set-up and the trainer's
start. When it is taken, its processes are killed at the step that they had reached by then.
"""

import json
import math
import os
import pathlib
import sys
import time

from fakes.gcloud import Cloud

STEP_SECONDS = 1200.0
START_SECONDS = 300.0
PERIOD = 1  # steps between two checkpoints
ZONES = ("us-east5-a", "europe-west4-b")
DEVICES = {"v6e-8": 8, "v6e-4": 4, "v4-8": 2, "v5litepod-1": 1}  # of the simulation
AWAKE = 4  # polls after a change that are not jumped over


class Week:
    """The clock of `tpu.supervise`, and what happens meanwhile."""

    def __init__(self, cloud: Cloud, run: pathlib.Path, steps: int):
        self.cloud, self.run, self.steps = cloud, run, steps
        self.now, self.awake = 1.0, AWAKE
        self.process, self.began, self.first = 0, 0.0, 0  # of the run on a slice
        self.folder = pathlib.Path(os.environ["PACE"])
        self.advance(self.now)

    def time(self):
        return self.now

    def sleep(self, seconds):
        """Advance by some seconds, or to the first poll of so many at which something changes."""
        target = self.now + seconds
        self.awake -= 1
        self.find_run()
        event = self.next_event()
        if self.awake <= 0 and event is not None and event > target:
            target += math.ceil((event - target) / seconds) * seconds
        while (event := self.next_event()) is not None and event <= target:
            self.advance(event)
            self.awake = AWAKE
        self.advance(target)

    def slices(self):
        paths = self.cloud.folder.glob("slices/*/about.json")
        return {path.parent.name: json.loads(path.read_text()) for path in paths}

    def find_run(self):
        """Notice that a run was started on a slice."""
        for name in (name for name, about in self.slices().items() if about["state"] == "READY"):
            path = self.cloud.home(name, 0) / "origin/runs/.pod/run.json"
            about = json.loads(path.read_text()) if path.exists() else {}
            if about.get("process", self.process) != self.process and "status" not in about:
                self.process, self.began = about["process"], self.now
                self.first = max(self.saved(), default=0)

    def saved(self):
        names = [path.name for path in self.run.glob("checkpoint_*")]
        return [int(name[11:]) for name in names if name[11:].isdigit()]

    def next_event(self):
        """Return when a slice is taken, the run ends or there is capacity, whichever is first."""
        ready = {n: about for n, about in self.slices().items() if about["state"] == "READY"}
        events = [about["taken"] for about in ready.values()]
        if self.process:
            events.append(self.began + START_SECONDS + (self.steps - self.first) * STEP_SECONDS)
        if not ready:
            events += [start for start, *_ in self.cloud.read("weather")]
        return min((event for event in events if event > self.now), default=None)

    def advance(self, now):
        """Let the run take its steps until a time, and take the slices that end then."""
        self.now = now
        self.cloud.write("clock", now)
        if self.process:
            trained = (now - self.began - START_SECONDS) / STEP_SECONDS
            self.take_steps(min(self.first + max(0, math.floor(trained + 1e-6)), self.steps))
        for name, about in self.slices().items():
            if about["state"] == "READY" and now >= about["taken"]:
                self.cloud.preempt(name)
                self.process = 0
                for file in ("allowed", "reached"):
                    (self.folder / file).write_text("0")

    def take_steps(self, step):
        """Let the run come to a step, and save it if that is due."""
        if step <= self.first:
            return
        (self.folder / "allowed.new").write_text(str(step))
        (self.folder / "allowed.new").replace(self.folder / "allowed")
        due = step // PERIOD * PERIOD
        end = time.monotonic() + 600
        while int((self.folder / "reached").read_text() or 0) < step or (
            due > self.first and max(self.saved(), default=0) < due
        ):
            assert self.state(), f"the run died before step {step}: {self.output()}"
            assert time.monotonic() < end, f"the run does not come to step {step}"
            time.sleep(0.01)
        if step == self.steps:
            while "zombie" not in (state := self.state()) and state:
                time.sleep(0.05)
            self.process = 0

    def output(self):
        logs = self.cloud.folder.glob("slices/*/0/origin/runs/.pod/output.txt")
        return "".join(path.read_text()[-2000:] for path in logs)

    def state(self):
        try:
            return pathlib.Path(f"/proc/{self.process}/status").read_text()
        except FileNotFoundError:
            return ""


def main():
    from launch import slices, tpu  # of the clone

    folder, run, steps = sys.argv[1:]
    settings = {**os.environ, "TPU_SSH_SECONDS": "600"}
    clock = Week(Cloud(folder), pathlib.Path(run), int(steps))
    slice = slices.Slice("ro", ZONES[0], settings, clock)
    flags = [f"--gin.TRAIN_STEPS={steps}"]
    types = ",".join(DEVICES).replace("v5litepod", "v5e")
    kind = {"spot": True, "zones": list(ZONES)}
    tpu.supervise(slice, "launch/week.sh", flags, any=types, **kind)


if __name__ == "__main__":
    main()
