"""Packages that only some commands need: which one is missing, and what installs it.

extras.require("apache_beam")   # raises the sentence before any work is done

pyproject.toml has the extras.
"""

from importlib.util import find_spec

# The extra that has a package, which is also a flag of launch/setup.sh.
_EXTRAS = {"apache_beam": "cache", "libtpu": "tpu", "s3fs": "s3"}


def missing(package: str | None) -> str | None:
    """Return the sentence for a package that is not installed, None for one of no extra."""
    if package not in _EXTRAS:
        return None
    extra = _EXTRAS[package]
    return (
        f"{package} is not installed: bash launch/setup.sh --{extra} installs it in .venv, "
        f"pip install -e '.[{extra}]' in an environment of your own."
    )


def require(*packages: str) -> None:
    """Raise ValueError for the first of these packages that is not installed."""
    for package in packages:
        if find_spec(package) is None:
            raise ValueError(missing(package))
