"""Prices follow from figures; what does not fit is cured at the least price; the best is chosen.

The compiler is a made-up one here, whose memory and cycles are a line of arithmetic.
"""

import ast
import dataclasses
import math

import pytest

from fakes import valid_run
from preflight.aot import tpu_slices
from preflight.aot.compiler import CompileError, Figures, OutOfMemory
from preflight.aot.cost_model import price
from preflight.aot.recipe import Recipe
from preflight.checks import compiled_step
from preflight.results import FAILS, NOT_CHECKED, OK, WARNING, judge
from preflight.search import compare_slices, fit, sweep
from preflight.search.trial import BATCH, MICROBATCHES, PARTITIONS, REMAT, attempt

RECIPE = Recipe(("gin/ro_t5x_tiny.gin",))
V4_8 = tpu_slices.find("v4-8")
FIGURES = Figures(
    cycles=105_000_000,
    argument_gib=1.0,
    parameter_gib=0.9,
    optimizer_gib=0.05,
    peak_gib=4.0,
    temp_gib=3.5,
    code_gib=0.1,
    flops=55e12,
    rows=16,
    tokens=16 * 157,
    compile_seconds=40.0,
    trace_seconds=3.0,
    collectives={"all-reduce": 2e9},
    costliest=[],
)
KEPT = {"none": 2.0, "minimal": 1.0, "full": 0.5}  # GiB a row
SLOWER = {"none": 0.9, "minimal": 1.0, "full": 1.3}


@pytest.fixture
def compiler(monkeypatch):
    """Compiles with `state` GiB of parameters, and as many again where gradients are added up.

    Tells what it was asked for; `recipe` are the values of the gin files.
    """
    asked = []

    def make(state=2.0, limit=10.0, **recipe):
        own = {BATCH: 16, MICROBATCHES: 1, PARTITIONS: 1, REMAT: "minimal"} | recipe

        def compile_step(request, cache=None):
            values = dict(own)
            for binding in request.recipe.bindings:
                name, _, value = binding.partition(" = ")
                values[name] = ast.literal_eval(value)
            asked.append(values)
            devices = tpu_slices.find(request.slice).device_count
            rows, parts, spread, remat = values.values()
            if rows % (devices // spread * parts):
                raise ValueError("does not divide")
            held = state / spread
            work = rows / devices / parts * KEPT[remat]
            work += held if parts > 1 else 0
            if held + work > limit:
                raise OutOfMemory("planted", held + work, limit, held)
            slower = SLOWER[remat] * (1 + 0.1 * math.log2(parts)) * (1 + 0.2 * math.log2(spread))
            changes = {"cycles": int(1e7 * rows / devices * slower), "rows": rows, "flops": 1e10}
            changes |= {"argument_gib": held, "peak_gib": held + work, "tokens": rows * 157}
            return Figures(**{**vars(FIGURES), **changes})

        monkeypatch.setattr("preflight.search.trial.compile_step", compile_step)
        return asked

    return make


def subject(rows=16, parts=1, remat="minimal", spread=1, tpu="v4-8"):
    import dataclasses
    import functools

    from fakes import toy
    from t5x.partitioning import PjitPartitioner
    from t5x.trainer import Trainer

    data = dataclasses.replace(valid_run.TRAIN, batch_size=rows)
    trainer = functools.partial(Trainer, learning_rate_fn=toy.rate, num_microbatches=parts)
    changes = {"train_dataset_cfg": data, "train_eval_dataset_cfg": None, "trainer_cls": trainer}
    changes["partitioner"] = PjitPartitioner(spread)
    return valid_run.subject(tpu=tpu, model=valid_run.model(remat_policy=remat), **changes)


# --- prices


def test_the_slowest_bound_decides():
    found = price(FIGURES, V4_8, steps=36_000)
    assert found.compiler_seconds == pytest.approx(0.1)
    assert found.arithmetic_seconds == pytest.approx(55e12 / (4 * 275e12))
    assert found.memory_seconds == pytest.approx(8 * 2**30 / 1228e9)
    assert found.steps_per_second == pytest.approx(10)
    assert found.mfu == pytest.approx(0.5)
    assert (found.hours, found.chip_hours) == pytest.approx((1.0, 4.0))
    assert found.tokens_per_second == pytest.approx(16 * 157 * 10)
    free = price(Figures(**{**vars(FIGURES), "cycles": 1}), V4_8, steps=1)
    assert free.steps_per_second == pytest.approx(1 / free.roofline_seconds)
    assert free.mfu == pytest.approx(1.0)


@pytest.mark.parametrize("kernels", [{"flops": 55e12, "bytes": 1}, {"flops": 1, "bytes": 245.6e9}])
def test_kernels_come_on_top_at_the_chips_best(kernels):
    figures = Figures(**{**vars(FIGURES), "kernels": kernels})
    assert price(figures, V4_8, 1).compiler_seconds == pytest.approx(0.1 + 0.2)


def test_a_core_of_two_has_half_the_chip_s_bandwidth():
    v3 = tpu_slices.find("v3-8")
    assert price(FIGURES, v3, 1).memory_seconds == pytest.approx(8 * 2**30 / 450e9)


# --- rows


def test_memory_is_split(compiler):
    compiler()
    row = compiled_step.memory(attempt(RECIPE, V4_8), V4_8)
    assert row.verdict == OK
    numbers = row.numbers
    parts = ("parameters_gib", "optimizer_gib", "activations_gib", "batch_and_program_gib")
    assert sum(numbers[part] for part in parts) == pytest.approx(numbers["used_gib"])
    assert numbers["limit_gib"] == 30.75


def test_memory_that_is_nearly_full_is_a_warning(compiler, monkeypatch):
    compiler(state=30.0, limit=40.0)
    assert compiled_step.memory(attempt(RECIPE, V4_8, ((BATCH, 4),)), V4_8).verdict == WARNING


def test_memory_that_lacks_says_by_how_much_and_what_to_set(compiler):
    compiler(state=1.0, limit=4.5)
    s = subject()
    failed = attempt(RECIPE, V4_8)
    cheapest, _ = fit.find(RECIPE, s, failed, say=str)
    row = judge("memory", compiled_step.memory, failed, V4_8, cheapest)
    assert row.verdict == FAILS
    assert "needs 5.00 GiB, 0.50 more than the 4.50" in row.figure
    assert "--gin.trainer.Trainer.num_microbatches=2" in row.to_set
    for check in (
        lambda: compiled_step.speed(failed, V4_8),
        lambda: compiled_step.collectives(failed),
    ):
        assert judge("speed", check).verdict == NOT_CHECKED


def test_a_compiler_that_fails_otherwise_is_not_checked(monkeypatch):
    def crash(request, cache=None):
        raise CompileError("status -6")

    monkeypatch.setattr("preflight.search.trial.compile_step", crash)
    row = judge("memory", compiled_step.memory, attempt(RECIPE, V4_8), V4_8)
    assert (row.verdict, row.figure) == (NOT_CHECKED, "status -6")


@pytest.mark.parametrize(("used", "verdict"), [(3.0, OK), (99.0, FAILS)])
def test_decoding_needs_room_beside_the_training_state(monkeypatch, used, verdict):
    found = {"used_gib": used, "held_gib": 1.5, "compile_seconds": 9.0}
    monkeypatch.setattr(compiled_step, "compile_decoding", lambda request: found)
    data = dataclasses.replace(valid_run.TRAIN, split="validation", batch_size=24)
    row = judge(
        "decoding",
        compiled_step.decoding,
        RECIPE,
        V4_8,
        valid_run.subject(infer_eval_dataset_cfg=data),
    )
    assert row.verdict == verdict
    assert f"a batch of 24 at an evaluation: {used:.2f} GiB of" in row.figure
    assert ("batch_size to less" in row.to_set) is (verdict == FAILS)


def test_a_decoding_that_does_not_fit_or_compile_is_told(monkeypatch):
    subject = valid_run.subject(infer_eval_dataset_cfg=valid_run.TRAIN)

    def raising(error):
        def compile_decoding(request):
            raise error

        monkeypatch.setattr(compiled_step, "compile_decoding", compile_decoding)
        return judge("decoding", compiled_step.decoding, RECIPE, V4_8, subject)

    row = raising(OutOfMemory("planted", 40.0, 31.75, 1.0))
    assert row.verdict == FAILS
    assert "needs 40.00 GiB beside the 1.00 of training, and a chip has 31.75" in row.figure
    assert raising(CompileError("planted")).verdict == NOT_CHECKED


def test_every_row_has_its_numbers(compiler):
    compiler()
    trial = attempt(RECIPE, V4_8, steps=100)
    s = subject()
    assert compiled_step.speed(trial, V4_8).numbers["flops"] == 1e10
    assert compiled_step.duration(trial, V4_8, s).numbers["chip_hours"] == trial.price.chip_hours
    per_host = compiled_step.feed(trial, tpu_slices.find("v4-32")).numbers["per_host"]
    assert per_host == trial.price.tokens_per_second / 4
    assert compiled_step.collectives(trial).figure == "all-reduce 2,000.0 MB a step and device"
    assert "40 s to compile" in compiled_step.compilation(trial, None).figure


def test_the_compiler_s_two_ways_to_say_that_memory_lacks():
    early = (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (86.83G) exceeds available HBM (30.75G)."
    )
    found = OutOfMemory.of(early, 1.25)
    assert (found.used, found.limit, found.arguments) == (86.83, 30.75, 1.25)
    late = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 31.05G of 30.75G hbm. "
        "Exceeded hbm capacity by 307.20M.\n\nTotal hbm usage >= 31.30G:\n    reserved 263.00M"
    )
    found = OutOfMemory.of(late, 1.25)
    assert (found.used, found.limit) == (31.05, 30.75)
    assert OutOfMemory.of("INTERNAL: something else", 0) is None


# --- cures


def cure(s, compiler_says):
    failed = attempt(RECIPE, s.tpu)
    return (*fit.find(RECIPE, s, failed, say=str), compiler_says)


def test_the_cheapest_of_all_kinds_is_named(compiler):
    """Microbatches cost 10 %, remat 30 %, two partitions 20 %: all are tried."""
    asked = compiler(state=1.0, limit=4.5)
    cheapest, tried, _ = cure(subject(), asked)
    assert cheapest.settings == ((MICROBATCHES, 2),)
    kinds = {name for trial in tried for name, _ in trial.settings}
    assert kinds == {MICROBATCHES, REMAT, PARTITIONS}


def test_a_state_too_large_is_cured_by_partitions_alone(compiler):
    asked = compiler(state=16.0, limit=10.0)
    cheapest, tried, _ = cure(subject(), asked)
    assert {name for trial in tried for name, _ in trial.settings} == {PARTITIONS}
    assert cheapest.settings[0][0] == PARTITIONS


def test_a_smaller_batch_is_the_last_resort(compiler):
    asked = compiler(state=2.0, limit=0.9, **{BATCH: 64, PARTITIONS: 4})
    cheapest, _, _ = cure(subject(rows=64, spread=4), asked)
    assert dict(cheapest.settings)[BATCH] == 2
    before = [a for a in asked if a[BATCH] == 64]
    assert asked.index(before[-1]) < asked.index(next(a for a in asked if a[BATCH] < 64))
    assert any(a[REMAT] == "full" and a[MICROBATCHES] > 1 for a in before)


def test_where_nothing_helps_that_is_said(compiler):
    asked = compiler(state=400.0)
    failed = attempt(RECIPE, V4_8)
    cheapest, tried, _ = cure(subject(), asked)
    assert cheapest is None
    assert tried
    row = compiled_step.memory(failed, V4_8, None)
    assert "a larger slice" in row.to_set


def test_only_what_divides_is_tried():
    assert fit.more_microbatches(subject(rows=24)) == [2]
    assert fit.larger_partitions(subject(spread=2)) == [4]
    assert fit.larger_partitions(subject(spread=4)) == []
    assert fit.stronger_remat(subject(remat="auto")) == ["full"]
    assert fit.stronger_remat(subject(remat="none")) == ["minimal", "full"]


# --- slices side by side


def test_on_each_slice_the_best_is_found(compiler):
    compiler(state=12.0, limit=10.0)
    v4, v5 = (compare_slices.best(RECIPE, subject(tpu=name), say=str) for name in ("v4-8", "v5e-8"))
    # One partition does not hold the state; two are cheaper than four.
    assert (v4.fits, v4.partitions) == (True, 2)
    assert v4.hours == pytest.approx(100 * 16 * v4.trial.seconds_a_row / 3600)
    table = compare_slices.table([v4, v5]).splitlines()
    assert len(table) == 3
    assert table[1].split()[:3] == ["v4-8", "4", "yes"]
    assert [found["slice"] for found in compare_slices.as_json([v4, v5])] == ["v4-8", "v5e-8"]


def test_a_slice_that_is_too_small_says_so(compiler):
    compiler(state=1000.0)
    found = compare_slices.best(RECIPE, subject(), say=str)
    assert (found.fits, found.trial) == (False, None)
    assert "nothing that was tried fits" in compare_slices.table([found])
    assert compare_slices.as_json([found])[0]["mfu"] is None


def test_a_larger_batch_is_chosen_where_it_pays(compiler, monkeypatch):
    compiler()
    found = compare_slices.best(RECIPE, subject(), say=str)
    assert found.batch == 16  # in the made-up compiler a row costs the same at any batch


# --- the sweep


def test_the_sweep_tries_all_that_divides_and_marks_the_frontier(compiler):
    asked = compiler(limit=6.0)
    found = sweep.sweep(RECIPE, subject(), say=str)
    assert {a[PARTITIONS] for a in asked} == {1, 2}
    assert {a[BATCH] for a in asked} == {8, 16, 32}
    best = sweep.frontier(found)
    for trial in best:
        assert not any(
            other.used_gib <= trial.used_gib
            and other.price.tokens_per_second > trial.price.tokens_per_second
            for other in found
            if other.fits
        )
    table = sweep.table(found, V4_8)
    assert table.count("\n*") == len(best) >= 2
    assert sum(entry["frontier"] for entry in sweep.as_json(found)) == len(best)


def test_what_does_not_fit_is_not_tried_larger(compiler):
    asked = compiler(limit=3.9)
    sweep.sweep(RECIPE, subject(), say=str)
    none = [a[BATCH] for a in asked if (a[REMAT], a[PARTITIONS]) == ("none", 1)]
    assert none == [8]
