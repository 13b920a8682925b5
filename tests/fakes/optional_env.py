"""Environments with packages that only some users install."""

import subprocess
from pathlib import Path

from fakes.paths import ROOT


def optional_folder(name: str = "optional") -> Path:
    """Return an environment's folder, set up by `tests/optional_env.sh`."""
    subprocess.run(["bash", ROOT / "tests" / "optional_env.sh", name], check=True)
    return ROOT / f".venv-{name}"


def optional_python(name: str = "optional") -> str:
    """Return its interpreter."""
    return str(optional_folder(name) / "bin" / "python")
