"""Uploads a finished conversion to a bucket through fsspec: `--out s3://bucket/ro_hf`."""

from pathlib import Path
from typing import Any

from common.errors import Failure, UserError, first_line, require
from convert import atomic_output

_LAST = "config.json"  # without it no library loads the folder


def check(address: str) -> None:
    """Raise UserError unless files can be written under `address`; leave nothing there."""
    if address.startswith("s3://"):
        require("s3fs")
    probe = f"{address.rstrip('/')}/.probe"
    try:
        system, path = _open(probe)
        system.pipe_file(path, b"-")
        system.rm_file(path)
    except Exception as error:  # each client has errors of its own
        raise UserError(
            "--out", address, f"which cannot be written ({first_line(error)})", "name another place"
        ) from error


def upload(folder: Path, address: str) -> str:
    """Upload a finished conversion, replacing an earlier one at `address`; return the address.

    A bucket cannot rename a folder. So config.json is removed first and written last: a folder that
    has one is complete. The record is written first, so that an upload that broke off is replaced.

    Raises:
      UserError: the address holds files that no conversion wrote.
      Failure: the bucket cannot be written.
    """
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    try:
        system, top = _open(address)
        old = set(system.find(top)) if system.exists(top) else set()
        if old and f"{top}/{atomic_output.RECORD}" not in old:
            raise atomic_output.foreign_files(address)
        if f"{top}/{_LAST}" in old:
            system.rm_file(f"{top}/{_LAST}")
        for name in sorted(names, key=lambda name: (name == _LAST, name != atomic_output.RECORD)):
            system.put_file(str(folder / name), f"{top}/{name}")
        for path in old - {f"{top}/{name}" for name in names}:
            system.rm_file(path)
    except UserError:
        raise
    except Exception as error:
        raise Failure(
            address,
            why=f"cannot be written ({first_line(error)}), but the conversion succeeded",
            to_set="run the same command again",
        ) from error
    return address


def _open(address: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    return url_to_fs(address, use_listings_cache=False)
