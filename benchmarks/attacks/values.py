"""Gives every command bad values, in real processes, and counts how each is refused.

    python benchmarks/attacks/values.py --results /tmp/attack_values.jsonl

The values are those of tests/fakes/bad_values.py. One is refused well if the process ends within
30 s of processor time with a status other than 0, prints a sentence and no traceback, and has
written nothing. Results are kept in --results, so that the same command continues after an
interruption. Prints a line per value that was not refused well, and a table of all commands; the
status is 1 if there is any such value.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fakes import bad_values, refusals  # noqa: E402

GOOD = "refused"


def rows(
    results: pathlib.Path | None = None, commands: Sequence[str] = ()
) -> list[tuple[str, str, str]]:
    """Try the values that `results` does not hold yet; return (command, value, outcome) of all.

    `commands` are the commands to try, by the beginning of their names, by default all. The
    outcome is 'refused', or what is wrong: 'accepted', 'traceback', …
    """
    known = {}
    if results and results.exists():
        found = [json.loads(line) for line in results.read_text().splitlines()]
        known = {(command, value): refusals.Outcome(*outcome) for command, value, outcome in found}
    wanted = [row for row in bad_values.BAD_VALUES if row.command.startswith(tuple(commands) or "")]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files = refusals.write_files(folder / "files")
        for number, row in enumerate(wanted):
            if (row.command, row.value) in known:
                continue
            outcome = refusals.in_own_process(row, folder / str(number), files)
            known[row.command, row.value] = outcome
            if results:
                with open(results, "a", encoding="utf-8") as file:
                    line = [row.command, row.value, dataclasses.astuple(outcome)]
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return [(row.command, row.value, known[row.command, row.value].fault or GOOD) for row in wanted]


def table(found: list[tuple[str, str, str]]) -> str:
    """Return a line per command: values, refused, and the others by what is wrong."""
    lines = [f"{'command':28} {'values':>6} {'refused':>7}  others"]
    for command in dict.fromkeys(command for command, _, _ in found):
        outcomes = [outcome for name, _, outcome in found if name == command]
        others = {o: outcomes.count(o) for o in dict.fromkeys(outcomes) if o != GOOD}
        shown = ", ".join(f"{count} {outcome}" for outcome, count in others.items())
        lines.append(f"{command:28} {len(outcomes):6} {outcomes.count(GOOD):7}  {shown}".rstrip())
    good = sum(outcome == GOOD for _, _, outcome in found)
    return "\n".join([*lines, f"{'all':28} {len(found):6} {good:7}"])


def main() -> int:
    """Try all values, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commands", nargs="*", help="commands such as convert and t5x.train")
    parser.add_argument("--results", type=pathlib.Path, help="keeps results of finished values")
    flags = parser.parse_args()
    found = rows(flags.results, flags.commands)
    for command, value, outcome in found:
        if outcome != GOOD:
            print(f"{command}  {value}: {outcome}")
    print(table(found))
    return int(any(outcome != GOOD for _, _, outcome in found))


if __name__ == "__main__":
    sys.exit(main())
