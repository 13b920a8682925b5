"""Preflight on the devices of this machine: the step is compiled, timed, and changed to fit."""

import dataclasses

import jax
import pytest

from common.tables import FAILS, NOT_CHECKED, OK, WARNING
from fakes import fake_compiler, valid_run
from preflight import here
from preflight.aot import recipe_step
from preflight.aot.compiler import OutOfMemory
from preflight.aot.cost import Price
from preflight.aot.recipe import Recipe
from preflight.checks import checklist, step
from preflight.run_context import RunContext
from preflight.search import Trial

pytestmark = pytest.mark.usefixtures("gin_apart")
RECIPE = Recipe(
    ("gin/ro_t5x_tiny.gin",),
    ("network.T5Config.num_encoder_layers = 1", "network.T5Config.num_decoder_layers = 1"),
)


@pytest.fixture
def few_checks(monkeypatch):
    """The checks of the corpus take seconds, and have their own tests."""
    wanted = ("periods", "partitions", "batch")
    rows = tuple(row for row in checklist.RUN if row[0] in wanted)
    monkeypatch.setattr(checklist, "RUN", rows)


def local(count=1, gib=100.0):
    found = here.find()
    chip = dataclasses.replace(found.chip, hbm=gib)
    return here.LocalDevices(found.name, chip, (count,))


def checked(recipe, local):
    return {row.check: row for row in checklist.check_recipe(recipe, local, True, say=str)}


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
    assert 0 < step.parameter_gib + step.optimizer_gib < step.used_gib < 10
    assert step.tokens == 16 * (128 + 29)
    assert (step.rows, step.timed_rows) == (16, 16)
    assert 0 < step.timed_seconds < 60
    with pytest.raises(OutOfMemory):
        here.measure(run, step.used_gib / 2)


def test_memory_speed_and_hours_of_a_step(tmp_path):
    def rows(seconds, timed, gib=100.0):
        context = RunContext(valid_run.run(tmp_path), local(gib=gib))
        figures = dataclasses.replace(fake_compiler.FIGURES, cycles=0)
        figures = dataclasses.replace(figures, timed_seconds=seconds, timed_rows=timed)
        trial = Trial((), figures, Price(figures, context.tpu, context.steps_left))
        memory = step.memory(trial, context.tpu)
        return memory, *(check(trial, context) for check in dict(checklist.STEP).values())

    memory, speed, duration, *_ = rows(0.5, 16)
    assert (memory.verdict, duration.verdict) == (OK, OK)
    assert duration.numbers["hours"] == 100 * 0.5 / 3600
    assert duration.figure.startswith("50 seconds for 100 steps, ")
    assert speed.numbers == {"seconds": 0.5, "rows": 16, "mfu": None}
    memory, speed, duration, *_ = rows(1e6, 2, gib=4.2)
    assert (memory.verdict, duration.verdict) == (WARNING, WARNING)
    assert "timed with 2 of 16 rows" in speed.figure


def test_on_a_cpu_a_part_of_a_large_batch_is_timed(tmp_path):
    run = valid_run.run(tmp_path)
    trainer, shapes = recipe_step.train_step(run, jax.devices())
    assert here.timed_rows(run, trainer, shapes) == 16
    huge = {k: jax.ShapeDtypeStruct((2**30, *x.shape[1:]), x.dtype) for k, x in shapes.items()}
    rows = here.timed_rows(run, trainer, huge)
    assert trainer.partitioner.mesh.shape["data"] <= rows < 2**30


def test_partitions_that_do_not_divide_the_devices_name_the_flag(few_checks):
    recipe = RECIPE.with_bindings("partitioning.PjitPartitioner.num_partitions = 3")
    found = checked(recipe, local(jax.device_count()))
    flag = "--gin.partitioning.PjitPartitioner.num_partitions=1"
    assert (found["partitions"].verdict, found["memory"].verdict) == (FAILS, FAILS)
    for row in (found["partitions"], found["memory"]):
        assert flag in f"{row.figure} {row.to_set}"
    assert found["speed"].verdict == NOT_CHECKED
    assert found["periods"].verdict == OK


def test_settings_that_make_a_step_fit_are_found(few_checks, monkeypatch):
    needs = {2: 3.0}  # GiB by number of microbatches

    def measure(run, limit):
        used = needs.get(recipe_step.trainer_of(run).num_microbatches, 9.0)
        if used > limit:
            raise OutOfMemory("fake", used, limit, 1.0)
        return dataclasses.replace(fake_compiler.FIGURES, timed_seconds=1.0)

    monkeypatch.setattr(here, "measure", measure)
    found = checked(RECIPE, local(gib=5.0))
    assert found["memory"].verdict == FAILS
    assert "needs 9.00 GiB, 4.00 more than the 5.00" in found["memory"].figure
    assert "--gin.trainer.Trainer.num_microbatches=2" in found["memory"].to_set
    assert found["speed"].verdict == NOT_CHECKED
    needs.clear()
    found = checked(RECIPE, local(gib=5.0))
    assert "no settings that were tried" in found["memory"].to_set
