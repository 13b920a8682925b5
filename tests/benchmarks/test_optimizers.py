"""Which trials are run, and what is read from their losses."""

import dataclasses
import math

import numpy as np
import pytest

from benchmarks import optimizers
from benchmarks.optimizers import BATCH, BUDGETS, RATES, SEEDS, Trial
from benchmarks.step import network_fields
from t5x.examples.t5.network import T5Config


def sweep(best: dict[str, float]) -> dict[Trial, dict]:
    """Return results of all sweeps, whose losses are least at the rates of `best`."""
    results: dict[Trial, dict] = {}
    while (trial := optimizers.next_trial(results)) and trial.steps == BUDGETS[0]:
        if trial.seed != SEEDS[0] or trial.rate == optimizers.best_rate(trial.optimizer, results):
            return results
        loss = 4 + abs(math.log(trial.rate / best[trial.optimizer]))
        results[trial] = dataclasses.asdict(trial) | {"loss": loss, "core_seconds_a_step": 1.0}
    return results


def complete() -> dict[Trial, dict]:
    """Return results of all trials, in which Muon needs half of the steps at 1.25 of the cost."""
    results: dict[Trial, dict] = {}
    while trial := optimizers.next_trial(results):
        fast = trial.optimizer == "muon"
        loss = 9 + 0.5 * trial.seed - math.log((1 + fast) * trial.steps)
        loss += abs(math.log(trial.rate / RATES[trial.optimizer][2]))
        seconds = 1.25 if fast else 1.0
        results[trial] = dataclasses.asdict(trial) | {"loss": loss, "core_seconds_a_step": seconds}
    return results


def test_the_network_is_a_t5_1_1_without_dropout_as_recipes_pretrain_it():
    tiny = network_fields("t5_1_1/tiny", [])
    assert optimizers.MODEL["mlp_activations"] == tuple(tiny["mlp_activations"])
    assert optimizers.MODEL["dropout_rate"] == 0.0
    assert optimizers.MODEL.keys() <= T5Config.__dataclass_fields__.keys()


def test_a_sweep_is_extended_until_the_best_rate_has_neighbours():
    best = {**dict.fromkeys(RATES, 0.03), "muon": 0.013, "adafactor": 0.8}
    results = sweep(best)
    assert optimizers.best_rate("muon", results) == pytest.approx(0.0125)
    assert optimizers.best_rate("adafactor", results) == 0.8
    for name in RATES:
        rates = [rate for _, rate in optimizers.sweep(name, results)]
        assert min(rates) < optimizers.best_rate(name, results) < max(rates)


def test_a_trial_that_diverged_is_never_the_best():
    results = sweep(dict.fromkeys(RATES, 0.05))
    trial = Trial("adafactor", 0.05, BUDGETS[0], SEEDS[0])
    results[trial] = {"loss": math.nan, "core_seconds_a_step": 1.0}
    assert optimizers.best_rate("adafactor", results) != 0.05


def test_the_best_rates_run_with_every_seed_at_every_budget():
    results = complete()
    for name in RATES:
        for steps in BUDGETS:
            assert len(optimizers.at_best(name, steps, results)) == len(SEEDS)


def test_other_trials_run_first_and_are_listed_apart():
    trial = optimizers.parse("muon matrix_rate=0.4, 0.05, 500, 1")
    assert trial == Trial("muon matrix_rate=0.4", 0.05, 500, 1)
    results = sweep(dict.fromkeys(RATES, 0.05))
    assert optimizers.next_trial(results, [trial]) == trial
    table = list(optimizers.table(results))
    results[trial] = {"loss": 4.25, "core_seconds_a_step": 1.0}
    assert optimizers.next_trial(results, [trial]) == optimizers.next_trial(results)
    listed = ["", "| other trials | rate | steps | loss |", "|---|---|---|---|"]
    listed += ["| muon matrix_rate=0.4 | 0.05 | 500 | 4.250 |"]
    assert list(optimizers.table(results)) == [*table, *listed]


def test_the_plot_has_a_line_for_each_optimizer(tmp_path):
    results = complete()
    figure = optimizers.draw(results, tmp_path / "plot.png")
    assert [len(axis.containers) for axis in figure.axes] == [len(RATES)] * 2
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_settings_of_a_trial_are_the_optimizers():
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_setting'"):
        optimizers.optimizer_of("muon no_setting=1")
    assert optimizers.optimizer_of("adamw_scaled least_scale=0.5").least_scale == 0.5
    assert not optimizers.optimizer_of("muon must_end=False").usual_rates.must_end


def test_the_steps_for_a_loss_are_interpolated_in_their_logarithm():
    losses = {250: 4.0, 500: 3.8, 1000: 3.7}
    assert optimizers.steps_needed(3.8, losses) == pytest.approx(500)
    assert optimizers.steps_needed(3.9, losses) == pytest.approx(250 * math.sqrt(2))
    assert optimizers.steps_needed(3.6, losses) == math.inf
    assert optimizers.steps_needed(4.1, losses) is None
    assert optimizers.steps_needed(4.1, {}) is None


def test_steps_and_core_hours_for_the_same_loss_are_compared_seed_by_seed():
    results = complete()
    found = optimizers.times_as_many("muon", 250, "adafactor", results)
    assert found == "2.00 ± 0.00 (3), core-hours 1.60"
    assert optimizers.times_as_many("muon", 1000, "adafactor", results) == "more than 1.00"
    assert optimizers.times_as_many("adafactor", 250, "muon", results) == ""


def test_a_seed_orders_all_examples_once():
    width = sum(optimizers.LENGTHS.values())
    examples = np.arange(3 * BATCH * width, dtype=np.uint16).reshape(3 * BATCH, width)
    seen = {seed: [b["encoder_input_tokens"][:, 0] for b in optimizers.batches(examples, seed)]
            for seed in (0, 1)}  # fmt: skip
    for parts in seen.values():
        assert sorted(np.concatenate(parts)) == sorted(examples[:, 0])
    assert not np.array_equal(seen[0][0], seen[1][0])


def test_results_are_read_by_trial(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"optimizer": "muon", "rate": 0.1, "steps": 250, "seed": 0, "loss": 4.0}\n')
    assert list(optimizers.read(path)) == [Trial("muon", 0.1, 250, 0)]
    assert optimizers.read(tmp_path / "none") == {}
