"""Which examples each objective trains on, and which trials are run."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from benchmarks import objectives, optimizers
from benchmarks.objectives import JOB, OBJECTIVES, PLAIN, TEXT, Noise
from benchmarks.optimizers import BATCH, PRETRAINING, SEEDS, Comparison, Trial
from tasks.objectives import ul2
from tasks.objectives.span_corruption import SpanNoise

NOISES = {
    noise._replace(replaced=0.0)
    for stages in OBJECTIVES.values()
    for stage in stages
    for noise in stage
}


def fake_examples(lengths: dict, rows: int = 10 * BATCH) -> dict:
    """Return examples whose tokens all are the number of their row, from 1."""
    numbers = np.arange(1, rows + 1, dtype=np.uint16)[:, None]
    return {
        noise: objectives.Examples(np.tile(numbers, sum(length)), length[0])
        for noise, length in lengths.items()
    }


@pytest.mark.parametrize("noise", sorted(NOISES), ids=lambda noise: noise.task)
def test_all_objectives_read_as_much_text(noise):
    lengths = objectives.lengths_of(noise, 0)
    spans = SpanNoise(noise.density, noise.mean_span)
    found = spans.lengths(lengths["inputs"])
    assert TEXT <= found.tokens <= TEXT + 2
    assert found.targets == lengths["targets"]
    assert objectives.lengths_of(noise, 3) == {**lengths, "inputs": lengths["inputs"] + 3}


def test_plain_span_corruption_is_pretrainings():
    assert objectives.lengths_of(PLAIN, 0) == PRETRAINING.lengths
    assert (PLAIN.density, PLAIN.mean_span, PLAIN.prefix) == (0.15, 3.0, "")


def test_ul2_has_the_denoisers_of_its_task():
    found = [(noise.density, noise.mean_span) for noise in objectives.UL2]
    assert found == [(d.noise.density, d.noise.mean_span) for d in ul2.UL2.denoisers]
    names = {"": "[R]", objectives.SEQUENTIAL: "[S]", objectives.EXTREME: "[X]"}
    assert [names[noise.prefix] for noise in objectives.UL2] == [
        d.prefix for d in ul2.UL2.denoisers
    ]


def test_noises_are_kept_in_files_of_their_own():
    assert len({noise.task for noise in NOISES}) == len(NOISES)


def test_plain_steps_are_those_of_pretraining():
    examples = fake_examples({PLAIN: (128, 29)})
    trial = Trial("muon on span_corruption", 0.2, 5, 1)
    steps = list(objectives.steps_of(trial, objectives.stages_of(trial), examples))
    assert len(steps) == 5
    wanted = optimizers.batches(PRETRAINING, examples[PLAIN].rows, seed=1)
    for (batch,), expected in zip(steps, wanted, strict=False):
        for name, array in expected.items():
            np.testing.assert_array_equal(batch[name], array)


def test_stages_have_equally_many_steps():
    dense, thin = Noise(0.3), PLAIN
    examples = fake_examples({dense: (117, 60), thin: (128, 29)})
    steps = objectives.steps_of(Trial("", 0.2, 6, 0), ((dense,), (thin,)), examples)
    widths = [batch["decoder_target_tokens"].shape[1] for (batch,) in steps]
    assert widths == [60] * 3 + [29] * 3


def test_noises_of_a_stage_share_the_rows_of_a_batch():
    lengths = {noise: (20 + i, 5 + i) for i, noise in enumerate(objectives.UL2)}
    trial = Trial("muon on ul2", 0.2, 2, 0)
    steps = objectives.steps_of(trial, objectives.stages_of(trial), fake_examples(lengths))
    seen = []
    for parts in steps:
        assert [part["encoder_input_tokens"].shape for part in parts] == [
            (10 if i == 0 else 9, 20 + i) for i in range(7)
        ]
        seen += [row for part in parts for row in part["encoder_input_tokens"][:, 0]]
    assert len(set(seen)) == 2 * BATCH


def test_tokens_are_replaced_by_what_fits_between_their_neighbours():
    rows = np.tile([5, 6, 7, 8, 2047, 1], (400, 1))
    rows[::2, 1] = 9  # as frequent as 6 between 5 and 7
    bigrams = objectives.Bigrams(rows.astype(np.uint16))
    changed = bigrams.replace(rows, 0.9, np.random.default_rng(0))
    np.testing.assert_array_equal(changed[:, [0, 2, 3, 4, 5]], rows[:, [0, 2, 3, 4, 5]])
    assert set(changed[:, 1]) == {6, 9}
    assert 0.35 < (changed != rows)[:, 1].mean() < 0.55


def test_replaced_tokens_are_labelled_in_the_first_half():
    stages = OBJECTIVES["replaced_tokens"]
    examples = {noise: fake_examples({noise: (128, 29)})[noise] for (noise,) in stages}
    trial = Trial("muon on replaced_tokens", 0.2, 4, 0)
    steps = [batch for (batch,) in objectives.steps_of(trial, stages, examples)]
    assert ["replaced" in batch for batch in steps] == [True, True, False, False]
    original = steps[0]["decoder_target_tokens"][:, :1]  # the row's number, as all of its inputs
    is_new = steps[0]["encoder_input_tokens"] != original
    np.testing.assert_array_equal(steps[0]["replaced"], is_new)


def test_detection_adds_its_loss_to_that_of_the_targets(monkeypatch):
    parent = objectives.models.EncoderDecoderModel
    monkeypatch.setattr(parent, "loss_fn", lambda *values: (10.0, "others"))
    trial = Trial("muon on replaced_tokens", 0.2, 4, 0)
    model = optimizers.model_of(trial, objectives.DetectingTransformer, objectives.DetectingModel)
    undecided = SimpleNamespace(apply=lambda variables, inputs, **settings: inputs * 0.0)
    monkeypatch.setattr(model, "module", undecided)
    batch = {
        "encoder_input_tokens": np.ones([2, 4], np.float32),
        "decoder_target_tokens": np.ones([2, 3]),
    }
    assert model.loss_fn({}, batch, None) == (10.0, "others")
    batch["replaced"] = jax.numpy.zeros([2, 4], bool)
    assert model.loss_fn({}, batch, None)[0] == pytest.approx(10 + 6 * np.log(2))


def test_the_detector_is_a_parameter_of_the_network():
    trial = Trial("muon on replaced_tokens", 0.2, 4, 0)
    model = optimizers.model_of(trial, objectives.DetectingTransformer, objectives.DetectingModel)
    shapes = dict.fromkeys(("encoder_input_tokens", "decoder_input_tokens"), (1, 4))
    found = jax.eval_shape(lambda: model.get_initial_variables(jax.random.key(0), shapes))
    assert found["params"]["detector"].value.shape == (optimizers.MODEL["emb_dim"],)
    assert found["params"]["detector"].names == ("embed",)


def test_an_unknown_objective_is_named():
    assert objectives.parse("muon on ul2, 0.1, 250, 0") == Trial("muon on ul2", 0.1, 250, 0)
    with pytest.raises(ValueError, match="objective is 'ul3', but must be one of span_corruption"):
        objectives.parse("muon on ul3, 0.1, 250, 0")


def test_every_objective_runs_at_one_rate_with_all_seeds():
    comparison = Comparison(JOB, {})
    while trial := comparison.next_trial():
        assert trial.rate == 0.2
        result = {"seed": trial.seed, "loss": 9 - trial.steps / 250, "core_seconds_a_step": 1.0}
        comparison.results[trial] = result
    assert len(comparison.results) == len(OBJECTIVES) * len(JOB.budgets) * len(SEEDS)
    assert "| muon on ul2 | 250 | 1.00 ± 0.00 (3), core-hours 1.00 |" in comparison.table()


def test_the_optimizer_is_named_before_the_objective():
    assert type(optimizers.optimizer_of("muon on ul2")) is type(optimizers.optimizer_of("muon"))
