"""Keeps compiled programs in a folder of this user, each with a checksum, for the next start.

A cached program is machine code, and JAX would run a damaged one. So programs are never read from a
run's folder. If a program does not match its checksum, it is deleted, and JAX compiles it anew. If
a program has no checksum, a kill may have cut it off, so it is deleted too. If the user names the
folder, programs without a checksum stay, since `preflight` writes such programs there.
"""

import contextlib
import os
import pathlib
import zlib
from collections.abc import Mapping

import jax
from absl import logging

from t5x.monitoring.compile_stats import COMPILED

_PROGRAM, _CHECKSUM = "-cache", ".crc32"  # how JAX ends a program's name, and what is added to it


def keep_programs(environment: Mapping[str, str]) -> None:
    """Keep programs in a folder of this user, unless JAX has a cache already; delete damaged ones.

    JAX_COMPILATION_CACHE_DIR sets another cache, JAX_ENABLE_COMPILATION_CACHE=false disables it.
    Programs in a bucket are not verified: each host of a pod would read all of them at each start,
    and whoever can write programs there can write their checksums too.
    """
    folder = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009 (unknown to mypy)
    is_own = folder is None
    if is_own:
        caches = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(caches, "t5x", "programs")
        jax.config.update("jax_compilation_cache_dir", folder)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in environment:
        # JAX keeps programs that took a second. A start also compiles dozens of smaller ones.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    if folder and "://" not in folder:
        programs = pathlib.Path(folder)
        _delete_damaged(programs, without_checksum=is_own)

        def listen(event: str, duration_secs: float, **_) -> None:
            if event == COMPILED:
                _write_checksums(programs)

        jax.monitoring.register_event_duration_secs_listener(listen)


def _checksum(path: pathlib.Path) -> str:
    return f"{zlib.crc32(path.read_bytes()):08x}"


def _delete_damaged(folder: pathlib.Path, without_checksum: bool) -> None:
    for program in folder.glob(f"*{_PROGRAM}"):
        checksum = pathlib.Path(f"{program}{_CHECKSUM}")
        with contextlib.suppress(OSError):  # deleted by another run meanwhile
            is_damaged = without_checksum
            if checksum.exists():
                is_damaged = checksum.read_bytes() != _checksum(program).encode()
            if is_damaged:
                logging.warning("%s is damaged or cut off: its program is compiled anew.", program)
                program.unlink()
                checksum.unlink(missing_ok=True)


def _write_checksums(folder: pathlib.Path) -> None:
    with contextlib.suppress(OSError):  # a full disk
        names = set(os.listdir(folder))
        for name in names:
            if name.endswith(_PROGRAM) and f"{name}{_CHECKSUM}" not in names:
                (folder / f"{name}{_CHECKSUM}").write_text(_checksum(folder / name))
