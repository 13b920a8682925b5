"""The formats that are made of converted PyTorch weights on request, and proven against them.

Their packages are not among those of the repository, so they are looked for before a conversion.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from convert.model_config import Sizes
from convert.served import ctranslate2_writer, onnx_writer
from convert.subprocesses import call_isolated


class _Format(NamedTuple):
    write: Any
    packages: tuple[str, ...]


WRITERS = {
    "onnx": _Format(onnx_writer.write, ("onnx", "onnxscript", "onnxruntime")),
    "ctranslate2": _Format(ctranslate2_writer.write, ("ctranslate2",)),
}


def check_packages(wanted: str, packages: Sequence[str]) -> None:
    """Raise ValueError if a package that a flag needs is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"{wanted} needs {' and '.join(missing)}, which no other command needs: install with "
            f"`python -m pip install {' '.join(packages)}`."
        )


def check(formats: Sequence[str], tokenizer: bool) -> None:
    """Raise ValueError if a format cannot be made: of a package, the weights, or the tokenizer."""
    for name in WRITERS.keys() & set(formats):
        check_packages(f"--formats {name}", WRITERS[name].packages)
        if "pytorch" not in formats:
            raise ValueError(f"--formats {name} is made of PyTorch's weights: add pytorch to it.")
    if "ctranslate2" in formats and not tokenizer:
        raise ValueError("--formats ctranslate2 needs the tokenizer: give its --vocabulary.")


def write(folder: Path, sizes: Sizes, formats: Sequence[str], isolate: bool) -> dict[str, Any]:
    """Write the requested formats into folders of `folder`; return the proof of each by its name.

    Raise ValueError if one does not compute what PyTorch does on the fixed batch.
    """
    return {
        name: call_isolated(isolate, WRITERS[name].write, folder, sizes)
        for name in WRITERS
        if name in formats
    }
