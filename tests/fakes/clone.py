"""A fresh copy of the repository, in which commands run as a user types them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fakes.loopback_hub import LoopbackHub
from fakes.paths import FAST_COMPILATION, ROOT


class Clone:
    """A fresh copy of the repository, with a local hub or offline."""

    def __init__(self, root: Path, hub: LoopbackHub | None):
        self.root = root
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.decode()
        for name in names.split("\0")[:-1]:
            if not name.startswith("tests/") and (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, root / name)
        (root / ".venv").symlink_to(sys.prefix)
        of_tests = ("XLA_FLAGS", "JAX_PLATFORMS", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
        environment = {name: value for name, value in os.environ.items() if name not in of_tests}
        home = {"HF_HOME": str(root / ".cache")}
        home |= {"HF_ENDPOINT": hub.url} if hub else {"HF_HUB_OFFLINE": "1"}
        # The commands of a page compile the same programs, and faster than LLVM's default.
        programs = {
            "JAX_COMPILATION_CACHE_DIR": str(root / ".cache/programs"),
            "XLA_FLAGS": FAST_COMPILATION,
        }
        self.environment = environment | home | programs | {"PYTHON": sys.executable}

    def run(self, command: str) -> str:
        """Run a command line, which must end with status 0, and return what it printed."""
        line = f"source .venv/bin/activate && {command}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=550,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{output[-4000:]}"
        assert "Traceback" not in output, output
        return output

    def write(self, name: str, text: str) -> None:
        """Write a file of the user."""
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)
