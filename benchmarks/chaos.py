"""Disturbs a run of real processes at random moments and compares its end to an undisturbed run.

    python benchmarks/chaos.py --rounds 20 --processes 2 --folder /tmp/chaos --seed 0

Each round resumes the run and makes one fault happen: kill -9 of one process or of all, SIGTERM to
one, a file of the newest checkpoint truncated, bytes of its arrays flipped, the disk filled. Prints
a line per round, then how many steps had to be computed again, and whether every loss and every
final array equals that of the undisturbed run, bit for bit. Records count as lost or repeated if a
step's loss differs. The model is small: starting takes most of a round.

The disk is a tmpfs of 64 MiB, which needs the right to mount; without it no disk is filled.
"""

import argparse
import contextlib
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fakes import pods  # noqa: E402

BATCH = 8  # of pods.SMALL
ENDLESS = 1_000_000
FAULTS = ("kill one", "kill all", "SIGTERM one", "cut a file", "flip bytes", "fill the disk")


class Chaos:
    """One run and the faults that happen to it."""

    def __init__(self, folder: pathlib.Path, processes: int, seed: int):
        self.folder, self.processes = folder, processes
        self.random = random.Random(seed)
        self.programs = folder.parent / "programs"
        self.run = folder / "run"
        self.slowest, self.recognised = 0.0, 0

    def pod(self, steps: int) -> pods.Pod:
        """Start or resume the run's processes."""
        return pods.Pod(self.folder, steps, self.processes, self.programs)

    def round(self, fault: str) -> str:
        """Make the fault happen; return its effect."""
        with self.pod(ENDLESS) as pod:
            first = self._first_step(pod)
            time.sleep(self.random.uniform(0.0, 3.0))
            begun = time.monotonic()
            statuses = getattr(self, "_" + fault.replace(" ", "_").lower())(pod)
            seconds = time.monotonic() - begun
            reached = self._reached(pod)
            self.recognised += "Resuming from /" in pod.said()
        self.slowest = max(self.slowest, seconds)
        saved = pod.saved()
        assert saved, f"no checkpoint is left: {pod.said()}"
        return (
            f"{fault:14} from step {first:4} to {reached:4}  ended after {seconds:4.1f} s with "
            f"{statuses}  newest checkpoint {saved[-1]}"
        )

    def _first_step(self, pod: pods.Pod) -> int:
        """Wait for two checkpoints and a step; return the step at which this start began."""
        pod.wait_for(lambda: self._reached(pod) and len(pod.saved()) > 1, 600)
        begins = re.search(r"Resuming from step ([\d,]+)", pod.said())
        return int(begins[1].replace(",", "")) if begins else 0

    def _reached(self, pod: pods.Pod) -> int:
        steps = re.findall(r"^step ([\d,]+)/", pod.said(), re.MULTILINE)
        return int(steps[-1].replace(",", "")) if steps else 0

    def _kill_one(self, pod: pods.Pod) -> list[int]:
        pod.processes[self.random.randrange(self.processes)].kill()
        return pod.ends(within=120)

    def _kill_all(self, pod: pods.Pod) -> list[int]:
        pod.kill()
        return pod.ends()

    def _sigterm_one(self, pod: pods.Pod) -> list[int]:
        pod.send(self.random.randrange(self.processes), signal.SIGTERM)
        statuses = pod.ends(within=120)
        assert not any(statuses), pod.said()
        return statuses

    def _files(self, pod: pods.Pod, pattern: str) -> list[pathlib.Path]:
        """Return the files of the newest checkpoint."""
        pod.kill()
        newest = self.run / f"checkpoint_{pod.saved()[-1]}"
        return sorted(p for p in newest.rglob(pattern) if p.is_file() and p.stat().st_size)

    def _cut_a_file(self, pod: pods.Pod) -> list[int]:
        path = self.random.choice(self._files(pod, "*"))
        with open(path, "r+b") as file:
            file.truncate(self.random.randrange(path.stat().st_size))
        return pod.ends()

    def _flip_bytes(self, pod: pods.Pod) -> list[int]:
        path = max(self._files(pod, "d/*"), key=lambda p: p.stat().st_size)
        data = bytearray(path.read_bytes())
        for place in self.random.sample(range(len(data)), 16):
            data[place] ^= self.random.randrange(1, 256)
        path.write_bytes(data)
        return pod.ends()

    def _fill_the_disk(self, pod: pods.Pod) -> list[int]:
        ballast = self.run / "ballast"
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        statuses = pod.ends(within=300)
        ballast.unlink()
        assert all(statuses), pod.said()
        assert re.search(r"Error: .* (cannot|could not) be written .*No space", pod.said()), (
            pod.said()
        )
        return statuses

    def finish(self) -> int:
        """Let the run end after ten more steps; return the last step."""
        last = pods.layout.all_steps(str(self.run))[-1] // 10 * 10 + 20
        with self.pod(last) as pod:
            assert not any(pod.ends()), pod.said()
        return last


@contextlib.contextmanager
def small_disk(folder: pathlib.Path, megabytes: int = 64) -> Iterator[bool]:
    """Create `folder`, of that size if this process may mount; return whether it is."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    try:
        mounted = not subprocess.run(mount, capture_output=True, check=False).returncode
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def chaos(
    folder: pathlib.Path, rounds: int, processes: int, seed: int, faults: tuple[str, ...] = FAULTS
) -> dict[str, float]:
    """Run everything in an empty `folder`.

    Returns:
      rounds, last_step, recognised_damage, slowest_end (seconds), differing_steps,
      differing_arrays, lost_or_repeated_records.
    """
    with small_disk(folder / "disturbed" / "run") as mounted:
        faults = [fault for fault in faults if mounted or fault != "fill the disk"]
        disturbed = Chaos(folder / "disturbed", processes, seed)
        plan: list[str] = []
        while len(plan) < rounds:
            plan += disturbed.random.sample(faults, len(faults))
        for number, fault in enumerate(plan[:rounds], 1):
            print(f"round {number:2}/{rounds}  {disturbed.round(fault)}", flush=True)
        last = disturbed.finish()
        found, state = pods.losses(disturbed.run), pods.arrays(disturbed.run)
        # With those that were repeated.
        loss = "loss_per_nonpadding_target_token"
        steps = len(pods.accumulated(disturbed.run, purge=False).Tensors(loss))
    with pods.Pod(folder / "quiet", last, processes, disturbed.programs) as quiet:
        assert not any(quiet.ends()), quiet.said()
        wanted, end = quiet.losses(), quiet.arrays()
    assert sorted(wanted) == list(range(1, last + 1))
    differing = [step for step in wanted if found.get(step) != wanted[step]]
    arrays = [name for name in end if not np.array_equal(end[name], state[name])]
    return {
        "rounds": rounds,
        "last_step": last,
        "steps_computed_again": steps - last,
        "recognised_damage": disturbed.recognised,
        "slowest_end": round(disturbed.slowest, 1),
        "differing_steps": len(differing),
        "differing_arrays": len(arrays),
        "lost_or_repeated_records": BATCH * len(differing),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/chaos"))
    parser.add_argument("--seed", type=int, default=0)
    values = parser.parse_args()
    for part in ("disturbed", "quiet"):
        shutil.rmtree(values.folder / part, ignore_errors=True)
    results = chaos(values.folder, values.rounds, values.processes, values.seed)
    for name, value in results.items():
        print(f"{name:26} {value}")


if __name__ == "__main__":
    main()
