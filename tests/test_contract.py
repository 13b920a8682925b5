"""What users bind, run and keep is as golden/contract.json has it.

    python tests/golden/make_contract.py     # writes that file, whose head says what is held

Modules, internals and the places of definitions may change. A change of what is held fails here; if
it is meant, CHANGELOG.md names it under "Changed", and the script writes the file again.
"""

import json

import pytest
from golden import make_contract

import fakes.main_module  # noqa: F401  # it registers our tasks

CONTRACT = json.loads(make_contract.FILE.read_text())


def lines(group: make_contract.Group) -> set[str]:
    """Return a line for each subject and for each of its parts."""
    return {*group, *(f"{subject}: {part}" for subject, parts in group.items() for part in parts)}


def difference(recorded: make_contract.Group, actual: make_contract.Group) -> str:
    """Return the lines that one of two groups lacks, and parts whose order changed."""
    changes = [f"  - {line}" for line in sorted(lines(recorded) - lines(actual))]
    changes += [f"  + {line}" for line in sorted(lines(actual) - lines(recorded))]
    both = [name for name in recorded if name in actual and recorded[name] != actual[name]]
    same = [name for name in both if sorted(recorded[name]) == sorted(actual[name])]
    changes += [f"  ~ {name}: another order" for name in same]
    return "\n".join(changes)


@pytest.mark.parametrize("name", make_contract.GROUPS)
def test_what_users_bind_run_and_keep_is_unchanged(name):
    changes = difference(CONTRACT[name], make_contract.GROUPS[name](CONTRACT[name]))
    assert not changes, (
        f"{name} changed; if it is meant, say so in CHANGELOG.md and run "
        f"python tests/golden/make_contract.py\n{changes}"
    )


def test_a_difference_names_the_part():
    recorded = {"t5x.train.train": ["model", "eval_steps=20"], "a": [], "b": ["x", "y"]}
    actual = {"t5x.train.train": ["model", "eval_steps=10"], "b": ["y", "x"]}
    assert difference(recorded, actual).splitlines() == [
        "  - a",
        "  - t5x.train.train: eval_steps=20",
        "  + t5x.train.train: eval_steps=10",
        "  ~ b: another order",
    ]
    assert not difference(recorded, recorded)
