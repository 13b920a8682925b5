"""Preflight on the devices of this machine: the step is compiled, timed, and changed to fit."""

import pytest

from command_line.results import FAILS, NOT_CHECKED, OK, WARNING
from fakes import valid_run
from preflight import here
from preflight.aot.recipe import Recipe
from preflight.run_context import RunContext

RECIPE = Recipe(
    ("gin/ro_t5x_tiny.gin",),
    ("network.T5Config.num_encoder_layers = 1", "network.T5Config.num_decoder_layers = 1"),
)


@pytest.fixture(autouse=True)
def isolated_gin():
    with valid_run.gin_apart():
        yield


@pytest.fixture
def few_checks(monkeypatch):
    """The checks of the corpus take seconds, and have their own tests."""
    wanted = ("periods", "partitions", "batch")
    rows = tuple(row for row in here.checklist.RUN if row[0] in wanted)
    monkeypatch.setattr(here.checklist, "RUN", rows)


def local(count=1, gib=100.0):
    found = here.find()
    chip = here.Chip(0.0, 0.0, 0.0, gib, 1, 1, 0.0, "cpu")
    return here.LocalDevices(found.name, chip, (count,))


def test_the_devices_and_their_memory_are_found():
    found = here.find()
    assert found.devices()[0].platform == "cpu"
    assert (found.device_count, found.hosts) == (len(found.devices()), 1)
    assert 0.1 < found.chip.hbm < 10_000
    assert found.name.startswith("CPU, ")


@pytest.mark.slow
def test_a_step_is_compiled_and_timed(tmp_path):
    run = valid_run.run(tmp_path)
    step = here.measure(run, 100.0)
    assert 0 < step.state_gib < step.used_gib < 10
    assert step.tokens == 16 * (128 + 29)
    assert step.rows == 16
    assert 0 < step.seconds < 60
    assert not here.measure(run, step.used_gib / 2).seconds  # it does not fit, so it is not run


def test_memory_speed_and_hours_of_a_step(tmp_path):
    run = valid_run.run(tmp_path)
    context = RunContext(run, local())
    step = here.Step(1.0, 0.5, 1.0, 100, seconds=0.5, rows=16)
    duration = here.duration(step, context)
    assert (duration.verdict, duration.numbers["hours"]) == (OK, 100 * 0.5 / 3600)
    assert duration.figure.startswith("50 seconds for 100 steps, ")
    assert here.memory_of(step, context).verdict == OK
    long = here.Step(1.0, 0.5, 1.0, 100, seconds=1e6, rows=2)
    assert here.duration(long, context).verdict == WARNING
    assert "timed with 2 of 16 rows" in here.speed(long, context).figure
    assert here.memory_of(long, RunContext(run, local(gib=1.01))).verdict == WARNING


def test_on_a_cpu_a_part_of_a_large_batch_is_timed(tmp_path, monkeypatch):
    run = valid_run.run(tmp_path)
    trainer, shapes = here.recipe_step.train_step(run, here.jax.devices())
    entire = here.timed_rows(run, trainer, shapes)
    monkeypatch.setattr(here, "_CPU_FLOPS", 1.0)
    pieces = trainer.partitioner.mesh.shape["data"]
    assert (entire, here.timed_rows(run, trainer, shapes)) == (16, max(pieces, 1))


def test_partitions_that_do_not_divide_the_devices_name_the_flag(few_checks):
    devices = here.jax.device_count()
    recipe = RECIPE.with_bindings("partitioning.PjitPartitioner.num_partitions = 3")
    found = {r.check: r for r in here.check_recipe(recipe, local(devices), True, str)}
    flag = "--gin.partitioning.PjitPartitioner.num_partitions=1"
    assert (found["partitions"].verdict, found["memory"].verdict) == (FAILS, FAILS)
    assert flag in found["partitions"].to_set
    assert flag in found["memory"].to_set
    assert found["speed"].verdict == NOT_CHECKED
    assert found["periods"].verdict == OK


def test_settings_that_make_a_step_fit_are_found(few_checks, monkeypatch):
    needs, seen = {2: 3.0}, []  # GiB by number of microbatches

    def measure(run, limit, is_timed=True):
        seen.append(here.recipe_step.bare_trainer(run).num_microbatches)
        return here.Step(needs.get(seen[-1], 9.0), 1.0, 1.0, 10)

    monkeypatch.setattr(here, "measure", measure)
    found = {r.check: r for r in here.check_recipe(RECIPE, local(gib=5.0), True, str)}
    assert found["memory"].verdict == FAILS
    assert "needs 9.00 GiB, 4.00 more than the 5.00" in found["memory"].figure
    assert found["memory"].to_set == "--gin.trainer.Trainer.num_microbatches=2"
    assert found["speed"].verdict == NOT_CHECKED
    needs.clear()
    found = {r.check: r for r in here.check_recipe(RECIPE, local(gib=5.0), True, str)}
    assert "no settings that were tried" in found["memory"].to_set
    assert len(seen) <= 3 + here._ATTEMPTS
