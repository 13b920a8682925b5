"""Seconds from a command to its first step or prediction, on this machine's CPU.

    .venv/bin/python benchmarks/startup.py [--work FOLDER] [--beside CHECKOUT] [--rounds 3]

Trains gin/ro_t5x_tiny.gin with nothing cached, resumes it, fine-tunes it, predicts with it, again
to another folder ("others"), and resumes it twice as a pod of four processes. Seconds are medians,
from the start of Python to the line of the first step, or of predictions to the end. The phases are
those of one more round with `--report`; what runs beside others counts where the process waits for
it. With --beside, another checkout of this repository takes turns, with the same Python. Each has
the environment that its own launch scripts set.
"""

import argparse
import functools
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
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPE = "gin/ro_t5x_tiny.gin"
PROCESSES = 4
FIRST = re.compile(r"^step \d+/")
PHASES = re.compile(r"First result after [\d.]+ s: (.*)\.$")


@functools.cache
def environment(checkout: pathlib.Path) -> dict[str, str]:
    """Return what the launch scripts of a checkout set for a CPU."""
    script = f"unset GLIBC_TUNABLES; source {checkout}/launch/environment.sh; "
    script += "if declare -F tune_malloc > /dev/null; then tune_malloc; fi; echo $GLIBC_TUNABLES"
    tunables = subprocess.check_output(["bash", "-c", script], text=True).strip()
    return {"JAX_PLATFORMS": "cpu"} | ({"GLIBC_TUNABLES": tunables} if tunables else {})


def train(folder: pathlib.Path, steps: int, *flags: str, recipe: str = RECIPE) -> list[str]:
    """Return the command that trains to a step, with a line for each."""
    steps_flags = [f"--gin.TRAIN_STEPS={steps}", "--gin.train.stats_period=1"]
    model_dir = f'--gin.MODEL_DIR="{folder}"'
    return ["t5x.train", f"--gin_file={recipe}", model_dir, *steps_flags, *flags]


def fine_tune(folder: pathlib.Path) -> list[str]:
    """Return the command of a first fine-tuning step from the run in `folder`."""
    checkpoint = f'--gin.INITIAL_CHECKPOINT_PATH="{folder / "checkpoint_2"}"'
    recipe = "gin/ro_diacritics_tiny.gin"
    return train(folder.with_name("fine_tune"), 3, checkpoint, recipe=recipe)


def predict(folder: pathlib.Path, output: str) -> list[str]:
    """Return the command that predicts for a file of two lines, to a folder of this name."""
    lines = folder / "lines.txt"
    lines.write_text("Ana are mere.\nAfară ninge.\n")
    settings = {
        "CHECKPOINT_PATH": folder / "checkpoint_2",
        "INFER_OUTPUT_DIR": folder.with_name(output),
    }
    flags = [f'--gin.{name}="{value}"' for name, value in settings.items()]
    gin = [f"--gin_file={RECIPE}", "--gin_file=t5x/configs/runs/infer.gin"]
    return ["t5x.infer", *gin, *flags, f"--gin.infer_script.infer.input_file='{lines}'"]


def start(checkout: pathlib.Path, command: Sequence[str], output: int) -> subprocess.Popen[str]:
    """Start a command of a checkout; its output and errors go to `output`."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", *command],
        cwd=checkout,
        env=os.environ | environment(checkout) | {"PYTHONPATH": str(checkout)},
        text=True,
        stdout=output,
        stderr=subprocess.STDOUT,
    )


def timed(checkout: pathlib.Path, command: Sequence[str]) -> tuple[float, dict[str, float]]:
    """Run a command of a checkout; return the seconds to its first step or its end, and phases."""
    begun, first, phases, said = time.monotonic(), 0.0, {}, []
    with start(checkout, command, subprocess.PIPE) as process:
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
    first, *others = ([*command, *flags, f"--process_index={i}"] for i in range(PROCESSES))
    processes = [start(checkout, other, subprocess.DEVNULL) for other in others]
    result = timed(checkout, first)
    for process in processes:
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
        "predictions": timed(checkout, [*predict(run, "predictions"), *report]),
        "others": timed(checkout, [*predict(run, "others"), *report]),
        f"{PROCESSES} processes, first start": pod(checkout, [*train(run, 3), *report]),
        f"{PROCESSES} processes, resumed": pod(checkout, [*train(run, 4), *report]),
    }


def table(rounds: Sequence[dict], before: Sequence[dict], reported: dict) -> Iterator[str]:
    """Return the lines of the table.

    Args:
      rounds: results of `commands` of this checkout.
      before: those of the other one, if any.
      reported: another round of this checkout, with phases.
    """
    names = list(rounds[0])
    columns = list(dict.fromkeys(phase for name in names for phase in reported[name][1]))
    beside = ["beside", "ratio"] if before else []
    yield f"| | {' | '.join(['seconds', *beside, *columns])} |"
    yield "|---" * (2 + len(beside) + len(columns)) + "|"
    for name in names:
        seconds = statistics.median(each[name][0] for each in rounds)
        cells = [f"{seconds:.1f}"]
        if before:
            other = statistics.median(each[name][0] for each in before)
            cells += [f"{other:.1f}", f"{seconds / other:.2f}"]
        phases = reported[name][1]
        cells += [f"{phases[phase]:.1f}" if phase in phases else "" for phase in columns]
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, help="folder for the runs")
    parser.add_argument("--beside", type=pathlib.Path, help="another checkout, timed alternately")
    parser.add_argument("--rounds", type=int, default=3)
    values = parser.parse_args()
    work = (values.work or pathlib.Path(tempfile.mkdtemp(prefix="startup-"))).resolve() / "startup"
    rounds, before = [], []
    for number in range(1, values.rounds + 1):
        if values.beside:
            before.append(commands(values.beside.resolve(), work, []))
        rounds.append(commands(ROOT, work, []))
        print(f"round {number} of {values.rounds}", file=sys.stderr)
    print("\n".join(table(rounds, before, commands(ROOT, work, ["--report"]))))


if __name__ == "__main__":
    main()
