"""Kept programs are found by the next start, and damaged ones are compiled anew."""

import logging

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
    assert (compiled > 0, stats.cached) == (True, 0)
    start(folder)
    compile_program()
    assert (len(stats.seconds), stats.cached) == (2 * compiled, compiled)


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("place", [0, 0.3, 0.5, 0.9, -1, "cut", "empty"])
def test_a_damaged_program_is_compiled_anew_with_one_line(place, is_noted, folder, caplog):
    start(folder)
    expected = compile_program()
    program, *_ = sorted((folder / "t5x/programs").glob("*-cache"))
    sound = program.read_bytes()
    data = bytearray(sound)
    if isinstance(place, str):
        data = data[: len(data) // 2 if place == "cut" else 0]
    else:
        data[int(place * len(data)) if isinstance(place, float) else place] ^= 0x10
    program.write_bytes(data)
    if not is_noted:  # as if the process had been killed while it wrote the program
        program.with_name(f"{program.name}.crc32").unlink()
    with caplog.at_level(logging.WARNING):
        start(folder)
    assert [str(program) in line for line in caplog.messages] == [True]
    assert compile_program().tolist() == expected.tolist()
    caplog.clear()
    start(folder)
    assert not caplog.messages
    assert program.exists()


def test_a_cache_set_by_the_user_stays(folder):
    jax.config.update(NAMES[0], "elsewhere")
    program_cache.keep_programs({"XDG_CACHE_HOME": str(folder)})
    assert jax.config.jax_compilation_cache_dir == "elsewhere"


def test_programs_in_a_folder_that_the_user_names_need_no_checksum(folder):
    start(folder)
    compile_program()
    programs = folder / "t5x/programs"
    for noted in programs.glob("*.crc32"):
        noted.unlink()
    stats = compile_stats.CompileStats()
    jax.clear_caches()
    jax.experimental.compilation_cache.compilation_cache.reset_cache()
    jax.config.update(NAMES[0], str(programs))
    program_cache.keep_programs({})
    compile_program()
    assert stats.cached == len(stats.seconds) > 0
