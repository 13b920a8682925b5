"""The schedules against measured numbers, and each factor against its formula."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes.paths import GOLDEN
from fakes.refuses import refuses
from t5x.schedules import FACTORS, Cooldown, UsualRates, check_start, create_learning_rate_scheduler

GOLDEN = json.loads((GOLDEN / "schedules.json").read_text())


@pytest.mark.parametrize("spec", GOLDEN)
def test_golden_rates_are_met_exactly(spec):
    factors, base, warmup = spec.split("|")
    rate = create_learning_rate_scheduler(
        factors=factors, base_learning_rate=float(base), warmup_steps=int(warmup)
    )
    jitted = jax.jit(rate)
    for step, expected in GOLDEN[spec].items():
        assert float(rate(int(step))) == expected, step
        assert float(rate(jnp.int32(step))) == expected, step
        np.testing.assert_allclose(jitted(jnp.int32(step)), expected, rtol=1e-6)
    assert (jitted(5).dtype, jitted(5).shape) == (jnp.float32, ())


# name, step, expected; warmup 10, decay 0.1 every 7, cycle 20, base 2.
FORMULAS = [
    ("constant", 5, 2.0),
    ("linear_warmup", 4, 0.4),
    ("linear_warmup", 40, 1.0),
    ("linear_decay", 4, 2 * 0.4),
    ("linear_decay", 15, 2 * (1 - 0.1 * 5)),
    ("linear_decay", 30, 1e-8),  # the line is below zero: the floor holds
    ("linear_decay_to_zero", 4, 1.0),
    ("linear_decay_to_zero", 15, 0.75),
    ("linear_decay_to_zero", 30, 1e-8),
    ("linear_decay_to_zero", 40, 1e-8),
    ("cosine_decay_to_zero", 4, 1.0),
    ("cosine_decay_to_zero", 15, 0.5 * (1 + math.cos(math.pi / 4))),
    ("cosine_decay_to_zero", 40, 1e-8),
    ("linear_cooldown", 22, 1.0),
    ("linear_cooldown", 28, 0.25),
    ("linear_cooldown", 40, 1e-8),
    ("rsqrt_decay", 3, 1 / math.sqrt(10)),
    ("rsqrt_decay", 90, 1 / math.sqrt(90)),
    ("rsqrt_normalized_decay", 3, 1.0),
    ("rsqrt_normalized_decay", 90, 1 / 3),
    ("decay_every", 6, 1.0),
    ("decay_every", 7, 0.1),
    ("decay_every", 21, 0.001),
    ("cosine_decay", 3, 1.0),
    ("cosine_decay", 20, 0.5),
    ("cosine_decay", 25, 0.5 * (1 + math.cos(0.75 * math.pi))),
    ("cosine_decay", 30, 1.0),  # a new cycle begins
]


@pytest.mark.parametrize(("name", "step", "expected"), FORMULAS)
def test_each_factor_is_its_formula(name, step, expected):
    rate = create_learning_rate_scheduler(
        factors=name,
        base_learning_rate=2.0,
        warmup_steps=10,
        decay_factor=0.1,
        steps_per_decay=7,
        steps_per_cycle=20,
        total_steps=30,
        cooldown_steps=8,
    )
    np.testing.assert_allclose(rate(step), expected, rtol=1e-6)


def test_every_factor_has_a_formula_in_the_table():
    assert {name for name, _, _ in FORMULAS} == set(FACTORS)


def test_step_offset_shifts_the_schedule_and_never_looks_before_it():
    plain = create_learning_rate_scheduler(warmup_steps=10)
    shifted = create_learning_rate_scheduler(warmup_steps=10, step_offset=1000)
    assert float(shifted(1025)) == float(plain(25))
    assert float(shifted(3)) == float(plain(0)) == np.float32(1e-8)


@pytest.mark.parametrize(
    ("arguments", "setting", "value"),
    [
        ({"factors": "constant * rsqrt_decya"}, "Learning rate factor 'rsqrt_decya'", ...),
        ({"factors": "cosine_decay", "steps_per_cycle": 0}, "steps_per_cycle", 0),
        ({"factors": "linear_decay_to_zero"}, "total_steps", 0),
        ({"factors": "linear_decay_to_zero", "total_steps": 1000}, "total_steps", 1000),
        ({"factors": "linear_cooldown"}, "cooldown_steps", 0),
        ({"factors": "linear_cooldown", "cooldown_steps": 0.2}, "cooldown_steps", 0.2),
        (
            {"factors": "linear_cooldown", "total_steps": 99, "cooldown_steps": 100},
            *("total_steps", 99),
        ),
    ],
)
def test_bad_arguments_are_named_before_the_first_step(arguments, setting, value):
    with refuses(setting, value):
        create_learning_rate_scheduler(**arguments)


START, END = 999_900, 1_001_900  # a fine-tune of 2,000 steps from a public checkpoint
COSINE = "constant * linear_warmup * cosine_decay"
TO_ZERO = "constant * linear_warmup * linear_decay_to_zero"
LOST = {
    "after the line's end": {"factors": "linear_decay", "decay_factor": 1 / 2000},
    "after the end": {"factors": TO_ZERO, "total_steps": 2000},
    "halved away": {"factors": "constant * decay_every"},
    "before its own start": {"factors": TO_ZERO, "total_steps": 2000, "step_offset": START + 1000},
    "after the cooldown": {"factors": "constant * linear_cooldown", "total_steps": 2000}
    | {"cooldown_steps": 100},
    "far before its start": {"factors": "constant * linear_warmup", "step_offset": START, "at": 0},
}


def scheduled(factors, at=START, total=END, **settings):
    """Schedule, first step and last of a run."""
    settings = {"base_learning_rate": 1e-3, "warmup_steps": 100, **settings}
    return create_learning_rate_scheduler(factors, **settings), at, total


@pytest.mark.parametrize("name", LOST)
def test_a_schedule_that_counts_from_elsewhere_and_leaves_no_rate_is_refused(name):
    rate, start, total = scheduled(**LOST[name])
    with refuses(f"The learning rate {' * '.join(rate.names)}") as refusal:
        check_start(rate, start, total)
    assert refusal.value.to_set.endswith(f"step_offset to {start}")


@pytest.mark.parametrize(
    "settings",
    [
        {"factors": "constant"},
        {"factors": "constant * rsqrt_decay", "warmup_steps": 1},  # 0.001 of the base
        {"factors": "constant * linear_warmup * rsqrt_normalized_decay"},  # continued pretraining
        {"factors": COSINE, "step_offset": START, "steps_per_cycle": 1900},
        {"factors": TO_ZERO, "step_offset": START, "total_steps": 2000},
        {"factors": TO_ZERO, "step_offset": START, "total_steps": 8, "total": START + 8}
        | {"warmup_steps": 7},
        {"factors": "constant * linear_warmup * linear_cooldown", "total_steps": END}
        | {"cooldown_steps": END - START},  # ends where the run does
        {"factors": TO_ZERO, "total_steps": 2000, "at": None},  # no name holds the step
        {"factors": "constant * linear_decay_to_zero", "base_learning_rate": 0.0}
        | {"step_offset": START, "total_steps": 2000},
    ],
)
def test_a_schedule_that_counts_from_the_start_passes_in_silence(settings, caplog):
    check_start(*scheduled(**settings))
    assert not caplog.records


def test_a_custom_rate_and_a_run_without_remaining_steps_pass_in_silence(caplog):
    check_start(lambda step: 0.0, START, END)
    rate, *_ = scheduled(TO_ZERO, total_steps=2000)
    check_start(rate, END, END)
    assert not caplog.records
    with refuses(f"The learning rate {TO_ZERO}"):  # with one step left
        check_start(rate, END - 1, END)


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"factors": "constant * linear_warmup"}, ("1.0e-03",)),
        ({"factors": COSINE, "warmup_steps": 1000}, ("3.0e-07",)),  # between two waves
        ({"factors": TO_ZERO, "total_steps": END}, ("2.0e-06", "1.0e-06")),
        ({"factors": TO_ZERO, "total_steps": 2000, "min_learning_rate": 1e-4}, ("1.0e-04",)),
        ({"factors": "constant * decay_every", "at": 140_000, "total": 200_000}, ("7.8e-06",)),
        (
            {"factors": TO_ZERO, "at": 300, "total": 700, "total_steps": 700},
            ("6.7e-04", "3.3e-04", "1.7e-06"),
        ),
        ({"factors": "linear_decay", "at": 0, "total": 2000}, ("1,89",)),  # it ends long before
    ],
)
def test_a_schedule_of_other_steps_than_the_runs_is_reported(settings, rates, caplog):
    check_start(*scheduled(**settings))
    (record,) = caplog.records
    assert all(rate in record.getMessage() for rate in rates)


def test_a_cooldown_ends_any_product_and_leaves_what_is_before_it():
    settings = {"base_learning_rate": 1.0, "warmup_steps": 100}
    plain = create_learning_rate_scheduler("constant * rsqrt_decay", **settings)
    ended = create_learning_rate_scheduler(
        "constant * rsqrt_decay * linear_cooldown", **settings, total_steps=1000, cooldown_steps=200
    )
    steps = np.arange(801)
    np.testing.assert_array_equal(ended(steps), plain(steps))
    np.testing.assert_allclose(ended(900), plain(900) / 2, rtol=1e-6)
    assert float(ended(1000)) == np.float32(1e-8)


def test_a_cooldown_of_a_schedule_that_has_ended_is_refused():
    ended = create_learning_rate_scheduler(
        "constant * linear_decay_to_zero", 0.5, warmup_steps=10, total_steps=100
    )
    assert float(Cooldown.after(ended, 50, 60)(55)) == pytest.approx(0.5 * 0.5 / 2)
    with refuses() as refusal:
        Cooldown.after(ended, 100, 120)
    assert "step 100" in refusal.value.setting


MUON = UsualRates("optimizers.muon", 1e-5, 0.1, must_end=True)
ADAFACTOR = UsualRates("adafactor.Adafactor", 1e-5, 0.5)
FALLING = {"base_learning_rate": 1.0, "warmup_steps": 10, "total_steps": 1000}


@pytest.mark.parametrize(
    ("usual", "factors", "settings", "said"),
    [
        (MUON, TO_ZERO, FALLING, "is 1 at its peak"),
        (MUON, TO_ZERO, FALLING | {"base_learning_rate": 0.015}, None),
        (MUON, TO_ZERO, FALLING | {"base_learning_rate": 1e-7}, "is 1e-07 at its peak"),
        (ADAFACTOR, "constant", {"base_learning_rate": 1.0}, "is 1 at its peak"),
        # The factor makes 0.01 of Adafactor's 1.0.
        (ADAFACTOR, "constant * rsqrt_decay", FALLING | {"warmup_steps": 10_000}, None),
        (MUON, f"{TO_ZERO} * rsqrt_decay", FALLING | {"warmup_steps": 400}, None),
    ],
)
def test_a_rate_that_is_unusual_for_the_optimizer_is_reported(usual, factors, settings, said):
    rate = create_learning_rate_scheduler(factors, **settings)
    found = usual.unusual(rate, 0, 1000)
    assert (found is None) == (said is None)
    if said:
        assert said in found
        assert "base_learning_rate" in found


def test_the_peak_is_that_of_the_steps_to_take():
    rate = create_learning_rate_scheduler(TO_ZERO, **FALLING)
    assert MUON.unusual(rate, 990, 1000) is None
    assert "is 0.11 at its peak" in MUON.unusual(rate, 890, 1000)
    assert "is 0.11 at its peak" in MUON.unusual(Cooldown.after(rate, 890, 950), 890, 950)
    assert MUON.unusual(rate, 1000, 1000) is None
    assert MUON.unusual(lambda step: 9.0, 0, 1000) is None


@pytest.mark.parametrize("factors", ["constant * rsqrt_decay", "constant * linear_warmup"])
def test_a_schedule_without_an_end_is_refused_where_one_is_needed(factors):
    rate = create_learning_rate_scheduler(factors, 0.01, 1)
    with refuses("optimizers.muon"):
        MUON.unusual(rate, 0, 1000)
    assert dataclasses.replace(MUON, must_end=False).unusual(rate, 0, 1000) is None
    assert MUON.unusual(Cooldown.after(rate, 100, 200), 100, 200) is None


def test_warm_up_and_cooldown_below_1_are_shares_of_the_total():
    factors = "constant * linear_warmup * linear_cooldown"
    settings = {"base_learning_rate": 2.0, "total_steps": 400}
    shares = create_learning_rate_scheduler(
        factors, **settings, warmup_steps=0.1, cooldown_steps=0.25
    )
    steps = create_learning_rate_scheduler(factors, **settings, warmup_steps=40, cooldown_steps=100)
    np.testing.assert_array_equal(shares(np.arange(401)), steps(np.arange(401)))
    np.testing.assert_allclose(shares(np.array([20, 40, 300, 350])), [1, 2, 2, 1], rtol=1e-6)
