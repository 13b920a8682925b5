"""Which trials are run, and what is read from their losses."""

import dataclasses
import math

import numpy as np
import pytest

from benchmarks import optimizers, study
from benchmarks.optimizers import BATCH, BUDGETS, LENGTHS, RATES, SEEDS, Comparison, Trial


def result_of(trial: Trial, loss: float, core_seconds: float = 1.0) -> dict:
    return dataclasses.asdict(trial) | {"loss": loss, "core_seconds_a_step": core_seconds}


def swept(best: dict[str, float]) -> Comparison:
    """Return the comparison after all sweeps, whose losses are least at the rates of `best`."""
    comparison = Comparison({})
    while any(map(comparison.next_rate, RATES)):
        trial = comparison.next_trial()
        loss = 4 + abs(math.log(trial.rate / best[trial.optimizer]))
        comparison.results[trial] = result_of(trial, loss)
    return comparison


def complete() -> Comparison:
    """Return results of all trials, in which Muon needs half of the steps at 1.25 of the cost."""
    comparison = Comparison({})
    while trial := comparison.next_trial():
        fast = trial.optimizer.startswith("muon")
        loss = 9 + 0.5 * trial.seed - math.log((1 + fast) * trial.steps)
        loss += abs(math.log(trial.rate / RATES[trial.optimizer][2]))
        comparison.results[trial] = result_of(trial, loss, 1.25 if fast else 1.0)
    return comparison


def test_a_sweep_is_extended_until_the_best_rate_has_neighbours():
    comparison = swept({**dict.fromkeys(RATES, 0.03), "muon": 0.013, "adafactor": 0.8})
    assert comparison.best_rate("muon") == pytest.approx(0.0125)
    assert comparison.best_rate("adafactor") == 0.8
    for name in RATES:
        rates = [rate for _, rate in comparison.sweep(name)]
        assert min(rates) < comparison.best_rate(name) < max(rates)


def test_the_steps_for_a_loss_are_interpolated_in_their_logarithm():
    losses = {250: 4.0, 500: 3.8, 1000: 3.7}
    assert study.steps_needed(3.8, losses) == pytest.approx(500)
    assert study.steps_needed(3.9, losses) == pytest.approx(250 * math.sqrt(2))
    assert study.steps_needed(3.6, losses) == math.inf
    assert study.steps_needed(4.1, losses) is None
    assert study.steps_needed(4.1, {}) is None


def test_steps_and_core_hours_for_the_same_loss_are_compared_seed_by_seed():
    comparison = complete()
    assert all(len(comparison.at_best(n, s)) == len(SEEDS) for n in RATES for s in BUDGETS)
    times = comparison.times_as_many("muon", 250, "adafactor")
    assert times == "2.00 ± 0.00 (3), core-hours 1.60"
    assert comparison.times_as_many("muon", 1000, "adafactor") == "more than 1.00"
    assert comparison.times_as_many("adafactor", 250, "muon") == ""
    assert f"| muon | 250 | {times} | {times} |" in comparison.table()


def test_a_seed_orders_all_examples_once():
    width = sum(LENGTHS.values())
    examples = 1 + np.arange(3 * BATCH * width, dtype=np.uint16).reshape(3 * BATCH, width)
    parts = lambda seed: optimizers.batches(examples, seed)
    seen = {seed: [b["encoder_input_tokens"][:, 0] for b in parts(seed)] for seed in (0, 1)}
    for rows in seen.values():
        assert sorted(np.concatenate(rows)) == sorted(examples[:, 0])
    assert not np.array_equal(seen[0][0], seen[1][0])
