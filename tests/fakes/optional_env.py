"""An environment with packages that only some users install."""

import subprocess

from fakes.paths import ROOT


def optional_python() -> str:
    """Return its interpreter, set up by `tests/optional_env.sh`."""
    subprocess.run(["bash", ROOT / "tests" / "optional_env.sh"], check=True)
    return str(ROOT / ".venv-optional" / "bin" / "python")
