"""The step that preflight compiles is the trainer's, and its memory is as computed otherwise."""

import dataclasses
import math
import pathlib

import jax
import pytest

from common.tables import OK
from fakes import toy, valid_run
from fakes.fake_compiler import REMAT
from preflight.aot import recipe, recipe_step, slices
from preflight.aot.compiler import compile_decoding, compile_step
from preflight.aot.cost import Price
from preflight.aot.recipe import Recipe
from preflight.aot.recipe_step import RecipeRequest
from preflight.checks import step
from preflight.run_context import RunContext
from preflight.search import MICROBATCHES, Trial, cheapest, compile_trial, fit
from t5x.input_pipeline.stream import TrainStream
from t5x.monitoring import flops
from t5x.partitioning import PjitPartitioner
from t5x.schedules import Cooldown

GIB = 2**30
SPREAD = "partitioning.standard_logical_axis_rules.parameter_partitioning_dims"


@pytest.mark.parametrize(
    ("task", "pack"),
    [
        (None, True),
        (None, False),
        ("ro_mini_masked_lm", True),
        ("ro_mini_bert", True),
        ("ro_mini_bert", False),
    ],
)
def test_a_batch_has_the_shapes_that_the_stream_gives(task, pack):
    changes = {"train_dataset_cfg": dataclasses.replace(valid_run.TRAIN, pack=pack)}
    changes = valid_run.encoder(task, pack) if task else changes
    run = valid_run.run("runs/none", **changes)
    converter = run.model.FEATURE_CONVERTER_CLS
    stream = TrainStream(run.train_dataset_cfg, converter, (0, 16), seed=0, shards=1)
    assert recipe_step.batch_shapes(run) == stream.global_batch
    stream.close()


def test_the_step_of_a_cooldown_branch_has_its_rate():
    branch = {"cooldown_from": "runs/long/checkpoint_80", "total_steps": 100}
    run = valid_run.run("runs/none", **branch)
    trainer, _ = recipe_step.train_step(run, jax.devices()[:1])
    assert trainer.learning_rate_fn == Cooldown(toy.rate, 80, 100)


def test_a_partitioner_is_made_for_other_devices():
    own = PjitPartitioner(2)
    assert own.mesh.size == 8
    other = own.over(jax.devices()[:4])
    assert (own.mesh.size, other.mesh.size, other.num_partitions) == (8, 4, 2)


def counted(run):
    """Bytes of all parameters and of the optimizer, and FLOPs of a step."""
    state = recipe_step.trainer_of(run).specs.state
    size = lambda tree: sum(math.prod(x.shape) * 4 for x in jax.tree.leaves(tree))
    cfg = run.train_dataset_cfg
    work = flops.step_flops(
        run.model.module.config, cfg.batch_size, *cfg.task_feature_lengths.values()
    )
    return size(state.params), size(state.param_states), work


def check_sizes(figures, run, tpu):
    """Check that memory is within 5 % of the size of arrays and batch."""
    parameters, optimizer, work = counted(run)
    assert figures.parameter_gib == pytest.approx(parameters / GIB, rel=0.05)
    assert figures.optimizer_gib == pytest.approx(optimizer / GIB, rel=0.05)
    cfg = run.train_dataset_cfg
    batch = (
        sum(math.prod(x.shape) * 4 for x in recipe_step.batch_shapes(run).values())
        / tpu.device_count
    )
    held = (parameters + optimizer + batch) / GIB
    assert figures.argument_gib == pytest.approx(held, rel=0.05)
    assert figures.flops == work
    assert figures.rows == cfg.batch_size
    row = step.memory(Trial((), figures, Price(figures, tpu, 1)), tpu)
    assert row.verdict == OK
    parts = ("parameters_gib", "optimizer_gib", "activations_gib", "batch_and_program_gib")
    assert sum(row.numbers[part] for part in parts) == pytest.approx(figures.used_gib)


@pytest.mark.slow
def test_the_tiny_model_compiles_for_a_v4_8(tmp_path):
    tpu = slices.find("v4-8")
    with valid_run.gin_apart():
        asked = Recipe(("gin/ro_t5x_tiny.gin",), (f"{SPREAD} = 1",))
        run = recipe.load(asked)
        figures = compile_step(RecipeRequest("v4-8", asked), cache=str(tmp_path))
        check_sizes(figures, run, tpu)
    # The program is kept, to be copied to the slice.
    assert [pathlib.Path(name).parent for name in figures.cached] == [tmp_path]
    assert pathlib.Path(figures.cached[0]).stat().st_size > 10_000
    # Every device gets the sum of the others' gradients, in float32 as the recipe computes.
    assert figures.collectives["all-reduce"] >= 0.9 * figures.parameter_gib * GIB


SMALL = (
    "network.T5Config.emb_dim = 256",
    "network.T5Config.num_heads = 4",
    "network.T5Config.mlp_dim = 512",
    "network.T5Config.vocab_size = 8192",
    "BATCH_SIZE = 16",
)


@pytest.mark.slow
def test_a_base_model_cut_down_compiles_for_a_v4_8():
    """Its layers are scanned, so twelve take no longer to compile than one."""
    tpu = slices.find("v4-8")
    asked = Recipe(("gin/ro_t5x_base.gin",), (*SMALL, f"{SPREAD} = 2"))
    with valid_run.gin_apart():
        run = recipe.load(asked)
        figures = compile_step(RecipeRequest("v4-8", asked))
        # Two devices share a copy, and its parameters are sharded over the two copies too.
        parameters, _, work = counted(run)
    assert figures.parameter_gib == pytest.approx(parameters / 4 / GIB, rel=0.05)
    assert figures.flops == work
    held = figures.parameter_gib + figures.optimizer_gib
    assert figures.argument_gib == pytest.approx(held, rel=0.05)
    assert figures.temp_gib > 0
    assert not figures.cached
    # A scanned body is counted as often as it runs: the clock cannot beat the chip's peak.
    found = Price(figures, tpu, 1)
    assert found.compiler_seconds > found.arithmetic_seconds
    assert sum(figures.collectives.values()) > figures.parameter_gib * GIB / 4


@pytest.mark.slow
def test_settings_that_fit_are_found_by_the_compiler_itself(tmp_path):
    """Each of microbatches, remat and partitions is tried, and the cheapest that fits is named."""
    bindings = ("BATCH_SIZE = 65536", "network.T5Config.remat_policy = 'none'")
    asked = Recipe(("gin/ro_t5x_tiny.gin",), (*bindings, f"MODEL_DIR = '{tmp_path}'"))
    with valid_run.gin_apart():
        context = RunContext(recipe.load(asked), slices.find("v4-8"))
        failed = compile_trial(asked, context)
        assert failed.error.limit == pytest.approx(context.tpu.chip.hbm)
        tried = fit(asked, context, failed)
    assert cheapest(tried).figures.used_gib < context.tpu.chip.hbm
    assert {name for trial in tried for name, _ in trial.settings} >= {MICROBATCHES, REMAT}


@pytest.mark.slow
def test_the_decoding_of_an_evaluation_compiles_for_a_v4_8():
    with valid_run.gin_apart():
        asked = Recipe(("gin/ro_diacritics_tiny.gin",))
        run = recipe.load(asked)
        found = compile_decoding(RecipeRequest("v4-8", asked, decodes=True))
        parameters, optimizer, _ = counted(run)
    held = (parameters + optimizer) / GIB / 4  # chips, over which both are spread
    assert found["held_gib"] == pytest.approx(held, rel=0.05)
    # Decoding reads the parameters gathered and laid out, and keeps keys and values beside them.
    assert held + parameters / GIB < found["used_gib"] < 1
