"""The compiled step's memory, speed and price are reported, with what to set where it fails."""

import dataclasses

import pytest

from common.tables import FAILS, NOT_CHECKED, OK, WARNING, run_check
from fakes import fake_compiler, valid_run
from preflight.aot.compiler import CompileError, OutOfMemory
from preflight.aot.cost import Price
from preflight.aot.recipe import Recipe
from preflight.checks import step
from preflight.search import BATCH, Trial, cheapest, compile_trial, fit

RECIPE = Recipe(("gin/ro_t5x_tiny.gin",))


@pytest.fixture(scope="module")
def context():
    return fake_compiler.context()


def test_memory_is_split(context, monkeypatch):
    fake_compiler.install(monkeypatch)
    result = step.memory(compile_trial(RECIPE, context), context.tpu)
    assert result.verdict == OK
    numbers = result.numbers
    parts = ("parameters_gib", "optimizer_gib", "activations_gib", "batch_and_program_gib")
    assert sum(numbers[part] for part in parts) == pytest.approx(numbers["used_gib"])
    assert numbers["limit_gib"] == 30.75


def test_memory_that_is_nearly_full_is_a_warning(context, monkeypatch):
    fake_compiler.install(monkeypatch, state=30.0, limit=40.0)
    trial = compile_trial(RECIPE, context, ((BATCH, 4),))
    assert step.memory(trial, context.tpu).verdict == WARNING


def test_missing_memory_is_reported_with_its_amount_and_what_to_set(context, monkeypatch):
    fake_compiler.install(monkeypatch, state=1.0, limit=4.5)
    failed = compile_trial(RECIPE, context)
    best = cheapest(fit(RECIPE, context, failed, say=str))
    result = run_check("memory", step.memory, failed, context.tpu, best)
    assert result.verdict == FAILS
    assert "needs 5.00 GiB, 0.50 more than the 4.50" in result.figure
    assert "--gin.trainer.Trainer.num_microbatches=2" in result.to_set
    assert "a larger slice" in step.memory(failed, context.tpu, None).to_set
    assert run_check("speed", step.speed, failed, context).verdict == NOT_CHECKED
    assert run_check("wires", step.collectives, failed, context).verdict == NOT_CHECKED


def test_a_compiler_that_fails_otherwise_is_not_checked(context, monkeypatch):
    def crash(request, cache=None):
        raise CompileError("status -6")

    monkeypatch.setattr("preflight.search.compile_step", crash)
    trial = compile_trial(RECIPE, context)
    result = run_check("memory", step.memory, trial, context.tpu)
    assert (result.verdict, result.figure) == (NOT_CHECKED, "status -6")


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({"used_gib": 3.0, "held_gib": 1.5, "compile_seconds": 9.0}, OK),
        ({"used_gib": 99.0, "held_gib": 1.5, "compile_seconds": 9.0}, FAILS),
        (OutOfMemory("fake", 40.0, 31.75, 1.0), FAILS),
        (CompileError("fake"), NOT_CHECKED),
    ],
)
def test_decoding_needs_memory_beside_the_training_state(monkeypatch, found, verdict):
    def compile_decoding(request):
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(step, "compile_decoding", compile_decoding)
    cfg = dataclasses.replace(valid_run.TRAIN, split="validation", batch_size=24)
    context = valid_run.context(infer_eval_dataset_cfg=cfg)
    result = run_check("decoding", step.decoding, RECIPE, context)
    assert result.verdict == verdict
    assert ("batch_size to less" in result.to_set) is (verdict == FAILS)


def test_every_result_has_its_numbers(context, monkeypatch):
    fake_compiler.install(monkeypatch)
    trial = compile_trial(RECIPE, context)
    assert step.speed(trial, context).numbers["flops"] == 1e10
    hours = step.duration(trial, context).numbers
    assert hours["chip_hours"] == trial.price.chip_hours == 4 * hours["hours"]
    four_hosts = fake_compiler.context(tpu="v4-32")
    per_host = step.input_rate(trial, four_hosts).numbers["per_host"]
    assert per_host == trial.price.tokens_per_second / 4
    assert "all-reduce 2,000.0 MB" in step.collectives(trial, context).figure
    figures = dataclasses.replace(trial.figures, received=3e9)
    wires = step.collectives(Trial((), figures, Price(figures, context.tpu, 1)), context)
    assert wires.numbers["communication_seconds"] == pytest.approx(0.03)
    assert "40 s to compile" in step.compilation(trial, context).figure
