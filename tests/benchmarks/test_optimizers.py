"""Which trials are run, and what is read from their losses."""

import dataclasses
import math

import numpy as np
import pytest

from benchmarks import optimizers
from benchmarks.optimizers import BATCH, BUDGETS, LENGTHS, RATES, SEEDS, Comparison, Trial
from benchmarks.step import network_fields
from t5x.examples.t5.network import T5Config


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


def test_the_network_is_a_t5_1_1_without_dropout_as_recipes_pretrain_it():
    tiny = network_fields("t5_1_1/tiny", [])
    assert optimizers.MODEL["mlp_activations"] == tuple(tiny["mlp_activations"])
    assert optimizers.MODEL["dropout_rate"] == 0.0
    assert optimizers.MODEL.keys() <= T5Config.__dataclass_fields__.keys()


def test_a_sweep_is_extended_until_the_best_rate_has_neighbours():
    found = swept({**dict.fromkeys(RATES, 0.03), "muon": 0.013, "adafactor": 0.8})
    assert found.best_rate("muon") == pytest.approx(0.0125)
    assert found.best_rate("adafactor") == 0.8
    for name in RATES:
        rates = [rate for _, rate in found.sweep(name)]
        assert min(rates) < found.best_rate(name) < max(rates)


def test_a_trial_that_diverged_is_never_the_best():
    found = swept(dict.fromkeys(RATES, 0.05))
    trial = Trial("adafactor", 0.05, BUDGETS[0], SEEDS[0])
    found.results[trial] = result_of(trial, math.nan)
    assert found.best_rate("adafactor") != 0.05


def test_the_best_rates_run_with_every_seed_at_every_budget():
    found = complete()
    for name in RATES:
        for steps in BUDGETS:
            assert len(found.at_best(name, steps)) == len(SEEDS)


def test_other_trials_run_first_and_are_listed_apart():
    trial = optimizers.parse("muon matrix_rate=0.4, 0.05, 500, 1")
    assert trial == Trial("muon matrix_rate=0.4", 0.05, 500, 1)
    found = swept(dict.fromkeys(RATES, 0.05))
    assert found.next_trial([trial]) == trial
    table = list(found.table())
    found.results[trial] = result_of(trial, 4.25)
    assert found.next_trial([trial]) == found.next_trial()
    listed = ["", "| other trials | rate | steps | loss |", "|---|---|---|---|"]
    listed += ["| muon matrix_rate=0.4 | 0.05 | 500 | 4.250 |"]
    assert list(found.table()) == [*table, *listed]


def test_the_plot_has_a_line_for_each_optimizer(tmp_path):
    figure = complete().draw(tmp_path / "plot.png")
    assert [len(axis.containers) for axis in figure.axes] == [len(RATES)] * 2
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_settings_of_a_trial_are_the_optimizers():
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_setting'"):
        optimizers.optimizer_of("muon no_setting=1")
    made = optimizers.optimizer_of("adamw_scaled least_scale=0.5")
    assert made.least_scale == 0.5
    assert not optimizers.optimizer_of("muon must_end=False").usual_rates.must_end


def test_the_steps_for_a_loss_are_interpolated_in_their_logarithm():
    losses = {250: 4.0, 500: 3.8, 1000: 3.7}
    assert optimizers.steps_needed(3.8, losses) == pytest.approx(500)
    assert optimizers.steps_needed(3.9, losses) == pytest.approx(250 * math.sqrt(2))
    assert optimizers.steps_needed(3.6, losses) == math.inf
    assert optimizers.steps_needed(4.1, losses) is None
    assert optimizers.steps_needed(4.1, {}) is None


def test_steps_and_core_hours_for_the_same_loss_are_compared_seed_by_seed():
    found = complete()
    times = found.times_as_many("muon", 250, "adafactor")
    assert times == "2.00 ± 0.00 (3), core-hours 1.60"
    assert found.times_as_many("muon", 1000, "adafactor") == "more than 1.00"
    assert found.times_as_many("adafactor", 250, "muon") == ""
    assert f"| muon | 250 | {times} | {times} |" in found.table()


def test_a_seed_orders_all_examples_once():
    width = sum(LENGTHS.values())
    examples = 1 + np.arange(3 * BATCH * width, dtype=np.uint16).reshape(3 * BATCH, width)
    parts = lambda seed: optimizers.batches(examples, seed)
    seen = {seed: [b["encoder_input_tokens"][:, 0] for b in parts(seed)] for seed in (0, 1)}
    for rows in seen.values():
        assert sorted(np.concatenate(rows)) == sorted(examples[:, 0])
    assert not np.array_equal(seen[0][0], seen[1][0])


def test_results_are_read_by_trial(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"optimizer": "muon", "rate": 0.1, "steps": 250, "seed": 0, "loss": 4.0}\n')
    assert list(optimizers.read(path)) == [Trial("muon", 0.1, 250, 0)]
    assert optimizers.read(tmp_path / "none") == {}
