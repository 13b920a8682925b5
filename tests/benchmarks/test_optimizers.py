"""Which trials are run, and what is read from their losses."""

import dataclasses
import math

import numpy as np
import pytest

from benchmarks import optimizers
from benchmarks.optimizers import BATCH, DIACRITICS, JOBS, PRETRAINING, SEEDS, Comparison, Trial
from benchmarks.step import network_fields
from t5x.examples.t5.network import T5Config

RATES, BUDGETS = PRETRAINING.rates, PRETRAINING.budgets


def result_of(trial: Trial, loss: float, core_seconds: float = 1.0) -> dict:
    return dataclasses.asdict(trial) | {"loss": loss, "core_seconds_a_step": core_seconds}


def swept(best: dict[str, float]) -> Comparison:
    """Return the comparison after all sweeps, whose losses are least at the rates of `best`."""
    comparison = Comparison(PRETRAINING, {})
    while any(map(comparison.next_rate, RATES)):
        trial = comparison.next_trial()
        loss = 4 + abs(math.log(trial.rate / best[trial.optimizer]))
        comparison.results[trial] = result_of(trial, loss)
    return comparison


def complete(job=PRETRAINING) -> Comparison:
    """Return results of all trials, in which Muon needs half of the steps at 1.25 of the cost."""
    comparison = Comparison(job, {})
    while trial := comparison.next_trial():
        fast = trial.optimizer.startswith("muon")
        loss = 9 + 0.5 * trial.seed - math.log((1 + fast) * trial.steps)
        loss += abs(math.log(trial.rate / job.rates[trial.optimizer][2]))
        comparison.results[trial] = result_of(trial, loss, 1.25 if fast else 1.0)
    return comparison


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_the_network_is_a_t5_1_1_without_dropout_as_recipes_pretrain_it(job):
    tiny = network_fields("t5_1_1/tiny", [])
    assert job.model["mlp_activations"] == tuple(tiny["mlp_activations"])
    assert job.model["dropout_rate"] == 0.0
    assert job.model.keys() <= T5Config.__dataclass_fields__.keys()


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


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_the_best_rates_run_with_every_seed_at_every_budget(job):
    found = complete(job)
    for name in job.rates:
        for steps in job.budgets:
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
    made = optimizers.optimizer_of("adamw_scaled least_scale=0.5 after muon")
    assert made.least_scale == 0.5
    assert not optimizers.optimizer_of("muon must_end=False").usual_rates.must_end


def test_fine_tuning_begins_with_what_pretraining_has_left(tmp_path):
    params = {"a": {"b": np.arange(3.0)}, "c": np.ones([2, 2])}
    np.savez(tmp_path / "start_muon.npz", **{"a/b": params["a"]["b"], "c": params["c"]})
    start = lambda name: optimizers.start_of(Trial(name, 0.1, 100, 0), tmp_path, tmp_path)
    found = start("adafactor after muon")
    assert found.keys() == params.keys()
    np.testing.assert_array_equal(found["a"]["b"], params["a"]["b"])
    assert start("adafactor") is None
    starts = {name.partition(optimizers.AFTER)[2] for name in DIACRITICS.rates}
    assert starts == optimizers.STARTS.keys() <= RATES.keys()


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
    width = sum(PRETRAINING.lengths.values())
    examples = 1 + np.arange(3 * BATCH * width, dtype=np.uint16).reshape(3 * BATCH, width)
    parts = lambda seed: optimizers.batches(PRETRAINING, examples, seed)
    seen = {seed: [b["encoder_input_tokens"][:, 0] for b in parts(seed)] for seed in (0, 1)}
    for rows in seen.values():
        assert sorted(np.concatenate(rows)) == sorted(examples[:, 0])
    assert not np.array_equal(seen[0][0], seen[1][0])


def test_padding_of_targets_has_no_loss():
    examples = np.full([BATCH, sum(DIACRITICS.lengths.values())], 7, np.uint16)
    examples[:, -4:] = 0
    (batch,) = optimizers.batches(DIACRITICS, examples, seed=0)
    assert batch["decoder_loss_weights"].sum(1).tolist() == [60] * BATCH
    assert batch["decoder_input_tokens"][0, :2].tolist() == [0, 7]


def test_results_are_read_by_trial(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"optimizer": "muon", "rate": 0.1, "steps": 250, "seed": 0, "loss": 4.0}\n')
    assert list(optimizers.read(path)) == [Trial("muon", 0.1, 250, 0)]
    assert optimizers.read(tmp_path / "none") == {}
