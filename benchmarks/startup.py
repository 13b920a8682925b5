"""Seconds from a command to its first step or prediction, on this machine's CPU.

    .venv/bin/python benchmarks/startup.py [--work FOLDER] [--beside CHECKOUT] [--rounds 3]

Trains gin/ro_t5x_tiny.gin with nothing cached, resumes it, fine-tunes it, predicts with it, and
resumes it twice as a pod of four processes. Seconds are medians, from the start of Python to the
line of the first step, or of predictions to the end. The phases are those of `--report`; what runs
beside others counts where the process waits for it. With --beside, another checkout of this
repository takes turns, with the same Python; its phases are not printed.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPE = "gin/ro_t5x_tiny.gin"
PROCESSES = 4
FIRST = re.compile(r"^step \d+/")
PHASES = re.compile(r"First result after [\d.]+ s: (.*)\.$")
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def train(folder: pathlib.Path, steps: int, *flags: str) -> list[str]:
    """Return the command that trains to a step, with a line for each."""
    steps_flags = [f"--gin.TRAIN_STEPS={steps}", "--gin.train.stats_period=1"]
    model_dir = f'--gin.MODEL_DIR="{folder}"'
    gin = [] if any(flag.startswith("--gin_file") for flag in flags) else [f"--gin_file={RECIPE}"]
    return ["t5x.train", *gin, model_dir, *steps_flags, *flags]


def fine_tune(folder: pathlib.Path) -> list[str]:
    """Return the command of a first fine-tuning step from the run in `folder`."""
    checkpoint = f'--gin.INITIAL_CHECKPOINT_PATH="{folder / "checkpoint_2"}"'
    recipe = "--gin_file=gin/ro_diacritics_tiny.gin"
    return train(folder.with_name("fine_tune"), 3, recipe, checkpoint)


def predict(folder: pathlib.Path) -> list[str]:
    """Return the command that predicts for a file of two lines."""
    lines = folder / "lines.txt"
    lines.write_text("Ana are mere.\nAfară ninge.\n")
    settings = {
        "CHECKPOINT_PATH": folder / "checkpoint_2",
        "INFER_OUTPUT_DIR": folder.with_name("predictions"),
    }
    flags = [f'--gin.{name}="{value}"' for name, value in settings.items()]
    gin = [f"--gin_file={RECIPE}", "--gin_file=t5x/configs/runs/infer.gin"]
    return ["t5x.infer", *gin, *flags, f"--gin.infer_script.infer.input_file='{lines}'"]


def timed(checkout: pathlib.Path, command: Sequence[str]) -> tuple[float, dict[str, float]]:
    """Run a command of a checkout; return the seconds to its first step or its end, and phases."""
    command = [sys.executable, "-W", "ignore", "-m", *command]
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": str(checkout)}
    begun, first, phases, said = time.monotonic(), 0.0, {}, []
    with subprocess.Popen(
        command, cwd=checkout, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        for line in process.stdout or ():
            said.append(line)
            if not first and FIRST.match(line):
                first = time.monotonic() - begun
            if found := PHASES.search(line):
                named = (phase.rsplit(" ", 1) for phase in found[1].split(", "))
                phases = {name: float(seconds) for name, seconds in named}
    if process.returncode:
        raise SystemExit("".join(said))
    return first or time.monotonic() - begun, phases


def pod(checkout: pathlib.Path, command: Sequence[str]) -> tuple[float, dict[str, float]]:
    """Run a command as processes of one pod; return what the first one takes."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    flags = [f"--coordinator_address={address}", f"--process_count={PROCESSES}"]
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": str(checkout)}
    others = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", *command, *flags, f"--process_index={index}"],
            cwd=checkout, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for index in range(1, PROCESSES)
    ]  # fmt: skip
    result = timed(checkout, [*command, *flags, "--process_index=0"])
    for process in others:
        process.wait()
    return result


def commands(checkout: pathlib.Path, work: pathlib.Path, report: Sequence[str]) -> dict:
    """Return the seconds and phases of each command, by its name."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    run = work / "run"
    return {
        "first start": timed(checkout, [*train(run, 1), *report]),
        "resumed": timed(checkout, [*train(run, 2), *report]),
        "fine-tune": timed(checkout, [*fine_tune(run), *report]),
        "predictions": timed(checkout, [*predict(run), *report]),
        f"{PROCESSES} processes, first start": pod(checkout, [*train(run, 3), *report]),
        f"{PROCESSES} processes, resumed": pod(checkout, [*train(run, 4), *report]),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, help="folder for the runs")
    parser.add_argument("--beside", type=pathlib.Path, help="another checkout, timed alternately")
    parser.add_argument("--rounds", type=int, default=3)
    values = parser.parse_args()
    work = (values.work or pathlib.Path(tempfile.mkdtemp(prefix="startup-"))).resolve()
    seconds = collections.defaultdict(list)
    phases = collections.defaultdict(lambda: collections.defaultdict(list))
    for number in range(values.rounds):
        for checkout in filter(None, (values.beside, ROOT)):
            report = ["--report"] if checkout == ROOT else []
            for name, (first, parts) in commands(checkout.resolve(), work / "a", report).items():
                seconds[name, checkout].append(first)
                for phase, part in parts.items():
                    phases[name][phase].append(part)
            print(f"round {number + 1} of {values.rounds}, {checkout}", file=sys.stderr)
    median = statistics.median
    names = list(dict.fromkeys(name for name, _ in seconds))
    columns = list(dict.fromkeys(phase for name in names for phase in phases[name]))
    beside = ["beside", "ratio"] if values.beside else []
    print(f"| | {' | '.join(['seconds', *beside, *columns])} |")
    print("|---" * (2 + len(beside) + len(columns)) + "|")
    for name in names:
        cells = [f"{median(seconds[name, ROOT]):.1f}"]
        if values.beside:
            other = median(seconds[name, values.beside])
            cells += [f"{other:.1f}", f"{median(seconds[name, ROOT]) / other:.2f}"]
        parts = phases[name]
        cells += [f"{median(parts[c]):.1f}" if c in parts else "" for c in columns]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
