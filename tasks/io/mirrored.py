"""Which copy of a corpus is read, and what it holds by its manifest.

    folder({"user/name/ces": "/data/cs"}, "user/name", "ces", None)     # "/data/cs"

`tasks.mirror` writes the manifest. A copy of another configuration or revision is never read.
"""

import json
from collections.abc import Mapping
from typing import Any

from tasks.io import files

MANIFEST = "mirror.json"
_SETTING = "tasks.sources.mirrors.folders"


def folder(
    folders: Mapping[str, str], corpus: str, config: str | None, revision: str | None
) -> str | None:
    """Return the folder with the copy of a corpus, None if `folders` has none.

    `folders` has folders by corpus, or by corpus/config. A folder by corpus alone must have a
    manifest that names the configuration.

    Raises:
      ValueError: the copy is of another configuration or revision, or does not say which.
    """
    name = f"{corpus}/{config}" if config else corpus
    found = folders.get(name, folders.get(corpus))
    if found is None:
        return None
    manifest = _manifest(found)
    if manifest.get("corpus") != corpus or "config" not in manifest:
        if name not in folders:
            raise ValueError(
                f"{_SETTING} names {found} for {corpus!r}, and no {MANIFEST} there says which "
                f"configuration it holds: if it is {config!r}, name it for {name!r}"
            )
    elif manifest["config"] != config:
        raise ValueError(
            f"{found} holds configuration {manifest['config']!r} of {corpus!r}, not {config!r}: "
            f"copy that one by python -m tasks.mirror, and name its folder for {name!r} in "
            f"{_SETTING}"
        )
    versions = (manifest.get("revision"), manifest.get("commit"))
    if revision and manifest.get("corpus") == corpus and revision not in versions:
        raise ValueError(
            f"{found} holds {corpus!r} at commit {versions[1]}, not at {revision!r}: copy that one "
            f"by python -m tasks.mirror, or leave {name!r} out of {_SETTING}"
        )
    return found


def _manifest(path: str) -> dict[str, Any]:
    """Return the manifest of a copy; an empty one if there is none."""
    data = files.read_if_any(f"{path.rstrip('/')}/{MANIFEST}")
    return json.loads(data) if data else {}
