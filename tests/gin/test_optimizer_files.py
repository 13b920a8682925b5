"""The files of gin/optimizers/ with recipes of all kinds, and recipes that include one of them."""

import jax
import jax.numpy as jnp
import pytest

from preflight.aot import recipe, recipe_step
from t5x import adafactor, optimizers, schedules

pytestmark = pytest.mark.usefixtures("gin_apart")
PEAKS = {"adafactor": 0.05, "adamw_scaled": 0.05, "muon": 0.2}
PAIRS = [
    *[("muon", name) for name in ("ro_t5x_base", "ro_bert_tiny", "ro_modernbert_base")],
    *[("adafactor", name) for name in ("ro_t5x_tiny", "ro_bert_tiny")],
    *[("adamw_scaled", name) for name in ("ro_t5x_tiny", "ro_modernbert_base")],
]


def loaded(name, optimizer=None, *bindings):
    files = (f"gin/{name}.gin", *([f"gin/optimizers/{optimizer}.gin"] if optimizer else []))
    run = recipe.load(recipe.Recipe(files, bindings))
    return run, recipe_step.trainer_of(run).learning_rate_fn


@pytest.mark.parametrize(("optimizer", "name"), PAIRS)
def test_one_flag_sets_the_optimizer_and_a_rate_that_ends_with_the_run(optimizer, name, caplog):
    run, rate = loaded(name, optimizer)
    end, peak = run.total_steps, PEAKS[optimizer]
    rates = [float(rate(step)) for step in (0, end // 20, end // 10, end * 55 // 100, end)]
    assert rates == pytest.approx([1e-8, peak / 2, peak, peak / 2, 1e-8], rel=1e-4)
    made = run.model.optimizer_def
    assert made.usual_rates.optimizer.endswith({"adafactor": "Adafactor"}.get(optimizer, optimizer))
    assert made.usual_rates.unusual(rate, 0, end) is None
    schedules.check_start(rate, 0, end)
    assert not caplog.records
    specs = recipe_step.trainer_of(run).specs
    params, states = specs.state.params, specs.state.param_states
    update = lambda *state: made.update(*state, specs.axes, jnp.int32(0), jnp.float32(peak))
    shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
    assert shapes(jax.eval_shape(update, params, states, params)) == shapes((params, states))


@pytest.mark.parametrize(
    ("recipe", "start", "steps", "fewer"),
    [
        ("ro_t5x_base", 0, 2_000_000, 1_400_000),
        ("ro_t5x_large", 0, 2_000_000, 1_400_000),
        ("ro_mt5x_base", 1_000_000, 1_000_000, 700_000),
        ("ro_mt5x_large", 1_000_000, 500_000, 350_000),
    ],
)
def test_a_fast_recipe_is_the_other_with_muon_and_fewer_steps(recipe, start, steps, fewer, caplog):
    slow, slow_rate = loaded(recipe)
    peak = 4 * float(slow_rate(start))
    fast, rate = loaded(f"{recipe}_fast")
    assert isinstance(slow.model.optimizer_def, adafactor.Adafactor)
    assert isinstance(fast.model.optimizer_def, optimizers.DecoupledOptimizer)
    assert fast.model.optimizer_def.usual_rates.optimizer == "optimizers.muon"
    assert (slow.total_steps, fast.total_steps) == (start + steps, start + fewer)
    rates = [float(rate(start + step)) for step in (5_000, 10_000, (fewer + 10_000) // 2, fewer)]
    expected = [peak / 2, peak, peak / 2, 1e-8]
    assert rates == pytest.approx(expected, rel=1e-4, abs=1e-8)
    schedules.check_start(rate, start, fast.total_steps)
    assert not caplog.records
    assert fast.model.module.config == slow.model.module.config
    same = ("train_dataset_cfg", "checkpoint_cfg", "eval_period", "random_seed")
    assert all(getattr(fast, name) == getattr(slow, name) for name in same)
    assert fast.partitioner.num_partitions == slow.partitioner.num_partitions


def test_the_recipe_of_a_day_is_for_one_gpu_and_ends_at_zero_after_any_number_of_steps(caplog):
    fast, _ = loaded("ro_t5x_base_fast")
    for bindings, steps in (((), 100_000), (("TRAIN_STEPS = 200000",), 200_000)):
        day, rate = loaded("ro_t5x_base_day", None, *bindings)
        assert day.total_steps == steps
        rates = [float(rate(step)) for step in (steps // 20, steps // 10, steps * 55 // 100, steps)]
        assert rates == pytest.approx([0.02, 0.04, 0.02, 1e-8], rel=1e-4)
        schedules.check_start(rate, 0, steps)
    assert not caplog.records
    assert day.model.module.config == fast.model.module.config
    assert day.partitioner.num_partitions == 1
    assert recipe_step.trainer_of(day).num_microbatches == 4
