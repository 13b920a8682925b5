"""A run disturbed at random moments ends as an undisturbed one does, bit for bit.

Each round resumes the run and makes one fault happen: kill -9 of one process or of all, SIGTERM to
one, a file of the newest checkpoint truncated, bytes of its arrays flipped, the disk filled. The
model is small: starting takes most of a round. The disk is a tmpfs of 64 MiB, which needs the right
to mount; without it no disk is filled.
"""

import contextlib
import pathlib
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest

from fakes import pods

ENDLESS = 1_000_000
FAULTS = ("kill one", "kill all", "SIGTERM one", "cut a file", "flip bytes", "fill the disk")


class Chaos:
    """One run and the faults that happen to it."""

    def __init__(self, folder: pathlib.Path, processes: int, seed: int):
        self.folder, self.processes = folder, processes
        self.random = random.Random(seed)
        self.programs = folder.parent / "programs"
        self.run = folder / "run"
        self.recognised = 0

    def pod(self, steps: int) -> pods.Pod:
        """Start or resume the run's processes."""
        return pods.Pod(self.folder, steps, self.processes, self.programs)

    def round(self, fault: str) -> None:
        """Make the fault happen some time after two checkpoints and a step."""
        with self.pod(ENDLESS) as pod:
            reached = lambda: re.search(r"^step [\d,]+/", pod.said(), re.MULTILINE)
            pod.wait_for(lambda: reached() and len(pod.saved()) > 1, 600)
            time.sleep(self.random.uniform(0.0, 3.0))
            getattr(self, "_" + fault.replace(" ", "_").lower())(pod)
            self.recognised += "resuming from /" in pod.said()
        assert pod.saved(), f"no checkpoint is left: {pod.said()}"
        print(f"{fault}: newest checkpoint {pod.saved()[-1]}")

    def _kill_one(self, pod: pods.Pod) -> None:
        pod.processes[self.random.randrange(self.processes)].kill()
        pod.ends(within=120)

    def _kill_all(self, pod: pods.Pod) -> None:
        pod.kill()

    def _sigterm_one(self, pod: pods.Pod) -> None:
        pod.send(self.random.randrange(self.processes), signal.SIGTERM)
        assert not any(pod.ends(within=120)), pod.said()

    def _files(self, pod: pods.Pod, pattern: str) -> list[pathlib.Path]:
        """Return the files of the newest checkpoint."""
        pod.kill()
        newest = self.run / f"checkpoint_{pod.saved()[-1]}"
        return sorted(p for p in newest.rglob(pattern) if p.is_file() and p.stat().st_size)

    def _cut_a_file(self, pod: pods.Pod) -> None:
        path = self.random.choice(self._files(pod, "*"))
        with open(path, "r+b") as file:
            file.truncate(self.random.randrange(path.stat().st_size))

    def _flip_bytes(self, pod: pods.Pod) -> None:
        path = max(self._files(pod, "d/*"), key=lambda p: p.stat().st_size)
        data = bytearray(path.read_bytes())
        for place in self.random.sample(range(len(data)), 16):
            data[place] ^= self.random.randrange(1, 256)
        path.write_bytes(data)

    def _fill_the_disk(self, pod: pods.Pod) -> None:
        ballast = self.run / "ballast"
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        statuses = pod.ends(within=300)
        ballast.unlink()
        assert all(statuses), pod.said()
        sentence = r"Error: .* (cannot|could not) be written .*no space"
        assert re.search(sentence, pod.said(), re.IGNORECASE), pod.said()

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


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_no_loss_and_no_array_differs(tmp_path, processes):
    with small_disk(tmp_path / "disturbed" / "run") as mounted:
        disturbed = Chaos(tmp_path / "disturbed", processes, seed=processes)
        faults = [fault for fault in FAULTS if mounted or fault != "fill the disk"]
        for fault in disturbed.random.sample(faults, len(faults)):
            disturbed.round(fault)
        last = disturbed.finish()
        losses, arrays = pods.losses(disturbed.run), pods.arrays(disturbed.run)
    assert disturbed.recognised >= 1  # of the damages; a file that is cut may hide its checkpoint
    with pods.Pod(tmp_path / "quiet", last, processes, disturbed.programs) as quiet:
        assert not any(quiet.ends()), quiet.said()
    assert sorted(losses) == list(range(1, last + 1))
    assert losses == quiet.losses()
    for name, end in quiet.arrays().items():
        np.testing.assert_array_equal(arrays[name], end, err_msg=name)
