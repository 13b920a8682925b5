"""The version of this repository, as every command's --version prints it."""

import subprocess
import tomllib

from common.errors import ROOT


def version() -> str:
    """Return the name, the version and, in a clone, the commit: 't5x-recipes 0.2.0 (4485ca1)'."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = f"{project['name']} {project['version']}"
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return text
    return f"{text} ({found.stdout.strip()})"
