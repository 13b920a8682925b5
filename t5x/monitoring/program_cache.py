"""Keep compiled programs in a folder of this user for the next start.

A cached program is machine code that runs unchecked, so none is read from a run's folder. JAX
compiles anew what a kill has cut off.
"""

import os
from collections.abc import Mapping

import jax


def keep_programs(environment: Mapping[str, str]) -> None:
    """Keep programs in a folder of this user, unless JAX has a cache already.

    JAX_COMPILATION_CACHE_DIR sets another cache, JAX_ENABLE_COMPILATION_CACHE=false disables it.
    """
    if getattr(jax.config, "jax_compilation_cache_dir") is None:  # noqa: B009 (unknown to mypy)
        caches = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        jax.config.update("jax_compilation_cache_dir", os.path.join(caches, "t5x", "programs"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in environment:
        # JAX keeps programs that took a second. A start also compiles dozens of smaller ones.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
