"""Write a file that others may read at any moment."""

import os
import tempfile


def replace_file(path: str, content: bytes) -> None:
    """Write a file under another name and rename it, so that it is never incomplete."""
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(content)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
