"""Compilations are counted, and kept programs are found by the next start."""

import re

import jax
import jax.numpy as jnp
import pytest

from t5x.monitoring import compile_stats


@pytest.fixture
def cache(tmp_path):
    """The folder of this user's programs, of one test."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update(names[0], None)
    yield tmp_path / "t5x/programs"
    for name, value in before.items():
        jax.config.update(name, value)
    jax.experimental.compilation_cache.compilation_cache.reset_cache()


def test_a_program_is_compiled_once_and_then_found(cache, tmp_path):
    jax.experimental.compilation_cache.compilation_cache.reset_cache()
    compile_stats.keep_programs({"XDG_CACHE_HOME": str(tmp_path)})
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    stats = compile_stats.CompileStats()
    x = jnp.arange(7.0)
    compiled, found = len(stats.seconds), stats.found
    program = lambda x: jnp.sin(x) * 3 + jnp.cos(x)
    jax.jit(program).lower(x).compile()
    assert (len(stats.seconds), stats.found) == (compiled + 1, found)
    jax.clear_caches()
    jax.jit(program).lower(x).compile()
    assert stats.found == found + 1
    assert any(cache.iterdir())
    assert re.search(r"XLA: \d+ programs compiled, \d+ found in the cache", stats.text())
    assert re.search(r"This process: \d+\.\d\d GiB", stats.text())


def test_a_cache_set_by_the_user_stays(cache, tmp_path):
    jax.config.update("jax_compilation_cache_dir", "elsewhere")
    compile_stats.keep_programs({"XDG_CACHE_HOME": str(tmp_path)})
    assert jax.config.jax_compilation_cache_dir == "elsewhere"
