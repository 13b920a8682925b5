"""The converter's version: a digest of its files, and of the libraries that it exports with.

    python -m convert.version      # status 1, and a message, if a library is missing

Libraries with other versions may write other files.
"""

import hashlib
import importlib.metadata
import sys
from pathlib import Path

LIBRARIES = ("transformers", "tokenizers", "sentencepiece", "torch")


def version() -> str:
    """Return the digest; raise PackageNotFoundError if a library is not installed."""
    versions = [importlib.metadata.version(library) for library in LIBRARIES]
    digest = hashlib.sha256(repr(versions).encode())
    for file in sorted(Path(__file__).parent.glob("**/*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def main() -> int:
    """Print the version."""
    try:
        print(version())
    except importlib.metadata.PackageNotFoundError as error:
        print(f"{error.name} is not installed, which publishing needs")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
