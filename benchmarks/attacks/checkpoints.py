"""Damages files of a run's checkpoints at random and starts the run from what they leave.

    PYTHONPATH=. python benchmarks/attacks/checkpoints.py --number 200 --seed 0 --commands 5

A tiny run has checkpoints at steps 4, 8 and 12. Each attack damages one or two files, or a folder,
in the newest, the two newest or all of them, in the ways of tests/fakes/damage.py, and starts the
run in this process as t5x.train does. It survives if it starts with the numbers and the data of the
newest checkpoint that can be read and names each newer one, or, where all are damaged, ends with
one sentence that names all. Of `--commands`, the run is a real one and so is the command.

Prints a line per attack that is lost, and a table; the status is 1 if any is. --results keeps all
outcomes as JSON.
"""

import argparse
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fakes import damage, pods  # noqa: E402

SURVIVED = "survived"
Attack = list[tuple[int, str, str]]  # step, path in its checkpoint, kind of damage


def attack(run: pathlib.Path, steps: Sequence[int], rng: random.Random) -> Attack:
    """Damage some of the newest checkpoints in a run's folder; return what was done."""
    done = []
    for step in steps[-rng.choice((1, 1, 1, 2, len(steps))) :]:
        folder = run / f"checkpoint_{step}"
        paths = [str(path) for path in damage.files(folder)] + list(damage.FOLDERS)
        for path in rng.sample(paths, rng.choice((1, 1, 2))):
            kind = "deleted" if path in damage.FOLDERS else rng.choice(damage.KINDS)
            if (folder / path).exists():  # unless its folder has gone
                damage.damage(folder / path, kind, rng)
                done.append((step, path, kind))
    return done


def rows(number: int = 200, seed: int = 0, commands: int = 0) -> list[tuple[str, str, str]]:
    """Return (where, damage, outcome) of each attack; the outcome is "survived" or "lost: …".

    Args:
      number: of attacks on a start in this process.
      seed: of all random choices.
      commands: number of attacks on the real command.
    """
    rng, found = random.Random(seed), []
    with tempfile.TemporaryDirectory() as name:
        starter, copy = damage.Starter(pathlib.Path(name) / "sound"), pathlib.Path(name) / "copy"
        for _ in range(number):
            shutil.copytree(starter.folder, copy)
            done = attack(copy, damage.STEPS, rng)
            found.append(("start", _described(done), _outcome(starter, copy, done)))
            shutil.rmtree(copy)
        return found + _of_commands(pathlib.Path(name), commands, rng)


def _described(done: Attack) -> str:
    return "; ".join(f"{step}/{path} {kind}" for step, path, kind in done)


def _outcome(starter: damage.Starter, copy: pathlib.Path, done: Attack) -> str:
    try:
        fault = damage.fault(starter.start(copy), copy, {step for step, _, _ in done})
    except Exception as error:  # what the user would see as a traceback
        fault = f"{type(error).__name__}: {error}"
    return f"lost: {fault}" if fault else SURVIVED


def _of_commands(folder: pathlib.Path, number: int, rng: random.Random) -> list[tuple]:
    """Attack a run of `python -m t5x.train`, and resume it with the same command."""
    if not number:
        return []
    programs, steps, found = folder / "programs", (10, 20, 30), []
    keep = "utils.SaveCheckpointConfig.keep = None\n"
    with pods.Pod(folder / "real", steps[-1], programs=programs, bindings=keep) as pod:
        assert pod.ends() == [0], pod.said()
    for index in range(number):
        run = folder / str(index) / "run"
        shutil.copytree(pod.run, run)
        done = attack(run, steps, rng)
        with pods.Pod(run.parent, steps[-1] + 2, programs=programs, bindings=keep) as again:
            status, said = again.ends()[0], again.said()
        begun = re.search(r"^Resuming from step (\d+)", said, re.MULTILINE)
        resumed = damage.Found(int(begun[1]) if begun else None, said.strip() or None, (said,))
        if not begun:
            last = next((line for line in said.splitlines() if line.startswith("Error: ")), said)
            resumed = damage.Found(None, last, ())
        damaged = {step for step, _, _ in done}
        fault = damage.fault(resumed, run, damaged, steps)
        if status != (0 if begun else 2) or "Traceback" in said:
            fault = f"status {status}: {said[-500:]}"
        found.append(("command", _described(done), f"lost: {fault}" if fault else SURVIVED))
    return found


def table(found: Sequence[tuple[str, str, str]]) -> str:
    """Return a line for the starts, the commands, and both."""
    lines = ["|  | tried | survived | lost |", "|---|---|---|---|"]
    for name in ("start", "command", "all"):
        outcomes = [outcome for where, _, outcome in found if name in (where, "all")]
        good = outcomes.count(SURVIVED)
        lines.append(f"| {name} | {len(outcomes)} | {good} | {len(outcomes) - good} |")
    return "\n".join(lines)


def main() -> int:
    """Attack, and print what was lost and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=200, help="attacks on a start")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--commands", type=int, default=5, help="attacks on the real command")
    parser.add_argument("--results", type=pathlib.Path, help="receives all outcomes as JSON")
    flags = parser.parse_args()
    found = rows(flags.number, flags.seed, flags.commands)
    for where, what, outcome in found:
        if outcome != SURVIVED:
            print(f"{where}  {what}: {outcome}")
    if flags.results:
        flags.results.write_text(json.dumps(found, indent=1))
    print(table(found))
    return int(any(outcome != SURVIVED for _, _, outcome in found))


if __name__ == "__main__":
    sys.exit(main())
