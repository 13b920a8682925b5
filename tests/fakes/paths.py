"""Where the repository, its packages, its tests' golden numbers and its bundled corpus are."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
MINI = ROOT / "data" / "ro_mini"
PYTHONPATH = f"{ROOT}:{ROOT / 'tests'}"  # for processes that import `fakes`
PACKAGES = (
    *("command_line", "convert", "evaluation", "preflight"),
    *("report", "t5x", "tasks", "vocabulary"),
)
