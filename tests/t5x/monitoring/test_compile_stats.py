"""Compilations and memory are counted."""

import re

import jax
import jax.numpy as jnp

from t5x.monitoring import compile_stats


def test_what_is_compiled_is_counted():
    stats = compile_stats.CompileStats()
    x = jnp.arange(7.0)
    compiled = len(stats.seconds)
    jax.jit(lambda x: jnp.sin(x) * 3 + jnp.cos(x)).lower(x).compile()
    assert len(stats.seconds) == compiled + 1
    assert re.search(r"XLA: \d+ programs compiled, \d+ found in the cache", stats.text())
    assert re.search(r"This process: \d+\.\d\d GiB", stats.text())
