"""All attacks: checkpoints damaged, ports and servers of strangers, values that are wrong.

    PYTHONPATH=. python benchmarks/attack.py --results /tmp/attacks

Prints a table: attack, tried, survived, lost. Each attack has its own script, which prints more.
Finished ones are kept in --results, so that the same command continues after an interruption. The
status is 1 if anything was lost.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import benchmarks.attacks.checkpoints as attack_checkpoints  # noqa: E402
import benchmarks.attacks.port as attack_port  # noqa: E402
import benchmarks.attacks.servers as attack_servers  # noqa: E402
import benchmarks.attacks.values as attack_values  # noqa: E402
from tasks.io import formats  # noqa: E402

Row = tuple[str, int, int]


def checkpoints(_: pathlib.Path) -> Row:
    """Damage checkpoints 200 times at random, and start from what is left."""
    found = attack_checkpoints.rows(200, commands=4)
    return _row("checkpoints damaged at random", found, attack_checkpoints.SURVIVED)


def port(_: pathlib.Path) -> Row:
    """Start a pod among strangers."""
    found = attack_port.rows()
    survived = sum(outcome.startswith("started") for _, outcome in found)
    return "strangers at the port of a pod", len(found), survived


def servers(_: pathlib.Path) -> Row:
    """Read corpora from servers with faults."""
    formats.REMOTE_PART_BYTES = attack_servers.PART_BYTES
    return _row(
        "faults of web servers",
        attack_servers.rows(),
        attack_servers.COMPLETE,
        attack_servers.REFUSED,
    )


def values(results: pathlib.Path) -> Row:
    """Give every command bad values."""
    found = attack_values.rows(results / "values.jsonl")
    return _row("bad values, all commands", found, attack_values.GOOD)


ATTACKS: tuple[Callable[[pathlib.Path], Row], ...] = (checkpoints, port, servers, values)


def _row(name: str, found: Sequence[tuple], *good: str) -> Row:
    return name, len(found), sum(row[-1] in good for row in found)


def main() -> int:
    """Make the attacks that `--results` does not hold yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, required=True, help="folder of results")
    results = parser.parse_args().results
    results.mkdir(parents=True, exist_ok=True)
    found = []
    for attack in ATTACKS:
        file = results / f"{attack.__name__}.json"
        if not file.exists():
            file.write_text(json.dumps(attack(results)))
        found.append(json.loads(file.read_text()))
    print("| attack | tried | survived | lost |\n|---|---|---|---|")
    for name, tried, survived in found:
        print(f"| {name} | {tried} | {survived} | {tried - survived} |")
    return int(any(tried != survived for _, tried, survived in found))


if __name__ == "__main__":
    sys.exit(main())
