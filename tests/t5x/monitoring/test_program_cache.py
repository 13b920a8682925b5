"""Kept programs are found by the next start, and damaged ones are compiled anew."""

import jax
import jax.numpy as jnp
import pytest

from t5x.monitoring import compile_stats, program_cache

NAMES = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


def start(folder):
    """Start anew with the cache of a user whose caches are in `folder`."""
    jax.clear_caches()
    jax.experimental.compilation_cache.compilation_cache.reset_cache()
    jax.config.update(NAMES[0], None)
    program_cache.keep_programs({"XDG_CACHE_HOME": str(folder)})
    jax.config.update(NAMES[1], 0.0)


def compile_program():
    x = jnp.arange(7.0)
    return jax.jit(lambda x: jnp.sin(x) * 3 + jnp.cos(x)).lower(x).compile()(x)


@pytest.fixture
def folder(tmp_path):
    before = {name: getattr(jax.config, name) for name in NAMES}
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    jax.experimental.compilation_cache.compilation_cache.reset_cache()


def test_a_program_is_compiled_once_and_then_found(folder):
    start(folder)
    stats = compile_stats.CompileStats()
    compile_program()
    compiled = len(stats.seconds)
    assert (compiled > 0, stats.found) == (True, 0)
    start(folder)
    compile_program()
    assert (len(stats.seconds), stats.found) == (2 * compiled, compiled)


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_program_that_a_kill_has_cut_off_is_compiled_anew(share, folder):
    start(folder)
    expected = compile_program()
    for program in (folder / "t5x/programs").glob("*-cache"):
        data = program.read_bytes()
        program.write_bytes(data[: int(share * len(data))])
    start(folder)
    with pytest.warns(UserWarning, match="compilation cache"):
        assert compile_program().tolist() == expected.tolist()


def test_a_cache_set_by_the_user_stays(folder):
    jax.config.update(NAMES[0], "elsewhere")
    program_cache.keep_programs({"XDG_CACHE_HOME": str(folder)})
    assert jax.config.jax_compilation_cache_dir == "elsewhere"
