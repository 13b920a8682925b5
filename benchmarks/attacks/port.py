"""Strangers at the port of the start-up check, one kind after the other, then all at once.

    python benchmarks/attacks/port.py

A row a kind: whether a pod of 3 workers started nevertheless, and in how many seconds. See
tests/fakes/strangers.py.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fakes.strangers import STRANGERS, start_among  # noqa: E402

SECRET = b"0123456789abcdef" * 4
SECONDS = 30.0


def rows() -> list[tuple[str, str]]:
    """Return each kind of stranger and what became of the pod; "lost: …" where it did not start."""
    kinds = [(name, [name]) for name in STRANGERS]
    kinds.append((f"all {len(STRANGERS)} at once", list(STRANGERS)))
    return [(name, _outcome(strangers)) for name, strangers in kinds]


def _outcome(strangers: list[str]) -> str:
    try:
        return f"started in {start_among(strangers, SECRET, seconds=SECONDS):.2f} s"
    except (RuntimeError, ValueError, AssertionError) as error:
        return f"lost: {error}"


def main(argv: Sequence[str] = ()) -> None:
    """Print the table; exit with 1 if a pod did not start."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(argv)
    found = rows()
    print("| stranger | the pod |\n|---|---|")
    for name, outcome in found:
        print(f"| {name} | {outcome} |")
    lost = sum(outcome.startswith("lost") for _, outcome in found)
    print(f"\n{len(found)} tried, {len(found) - lost} survived, {lost} lost")
    sys.exit(lost > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
