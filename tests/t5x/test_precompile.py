"""The programs of a run are compiled ahead of it, with what they need, and nothing is run."""

import functools

import jax
import numpy as np
import pytest

from fakes import toy
from t5x import precompile as precompile_script
from t5x.inference.predictor import Predictor
from t5x.partitioning import PjitPartitioner, gathered
from t5x.train_state import state_specs
from t5x.trainer import Trainer

FILES = {"assignment", "lowered_hlo_post_optimization", "lowered_hlo_pre_optimization"}


def precompile(folder, **changes):
    arguments = {
        "model": toy.shared_model(),
        "train_dataset_cfg": toy.data(batch_size=6, pack=False),
        "partitioner": PjitPartitioner(devices=jax.devices()[:2]),
        "model_dir": str(folder),
        "random_seed": 0,
    }
    return precompile_script.precompile(**{**arguments, **changes})


@pytest.fixture(scope="module")
def compiled_ahead(tmp_path_factory):
    """The folder of one precompilation, what it returned, and the programs it compiled."""
    folder, programs = tmp_path_factory.mktemp("run"), []
    compile_program = jax.stages.Lowered.compile

    def recording(self, *args, **kwargs):
        programs.append(self.as_text())
        return compile_program(self, *args, **kwargs)

    cfg = toy.data("validation", batch_size=6, pack=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.stages.Lowered, "compile", recording)
        needs = precompile(
            folder,
            trainer_cls=functools.partial(Trainer, learning_rate_fn=toy.rate),
            train_eval_dataset_cfg=cfg,
            infer_eval_dataset_cfg=cfg,
            infer_modes=("predict", "score"),
            length_buckets=2,
        )
    return folder, needs, programs


def test_the_program_and_its_needs_are_written(compiled_ahead):
    folder, needs, _ = compiled_ahead
    assert min(needs[f"{name}seconds"] for name in ("", "eval_", "predict_", "score_")) > 0
    assert needs["arguments"] > 4 * 2 * 264 * 16  # the embedding and its second moment
    assert {p.name for p in folder.iterdir()} == FILES
    assert "stablehlo" in (folder / "lowered_hlo_pre_optimization").read_text()
    assert "all-reduce" in (folder / "lowered_hlo_post_optimization").read_text()
    assert np.load(folder / "assignment").tolist() == [[0], [1]]


def test_decoding_finds_all_its_programs(compiled_ahead):
    """It lowers exactly the programs that were compiled ahead."""
    _, _, programs = compiled_ahead
    model, partitioner = toy.shared_model(), PjitPartitioner(devices=jax.devices()[:2])
    params = toy.state(state_specs(model, partitioner)).params
    predictor = Predictor(model, partitioner, 6, length_buckets=2)
    shapes = precompile_script.example_of(model, toy.data("validation", batch_size=6, pack=False))
    example = {name: np.zeros(x.shape, x.dtype) for name, x in shapes.items()}
    for length in (3, 12):  # in the buckets of 8 and 16
        example["encoder_input_tokens"][:length] = 5
        (batch, _, number), *_ = predictor.batches([example])
        assert batch["encoder_input_tokens"].shape == (6, -(-length // 8) * 8)
        placed = jax.device_put(params, jax.tree.map(lambda x: gathered(x.sharding), params))
        for mode, arguments in (
            ("predict", predictor._steps["decoding_params"](placed)),
            ("score", placed),
        ):
            lowered = predictor._steps[mode].lower(arguments, batch, number).as_text()
            assert lowered in programs


def test_a_dry_run_compiles_nothing(tmp_path):
    assert precompile(tmp_path, dry_run=True, random_seed=None) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_step_of_a_cooldown_branch_is_compiled(tmp_path, monkeypatch):
    trainers = []
    show = lambda trainer, *_: trainers.append(trainer)
    monkeypatch.setattr(precompile_script.dry_run_table, "show_training", show)
    settings = {"trainer_cls": functools.partial(Trainer, learning_rate_fn=toy.rate)}
    settings |= {"cooldown_from": "runs/long/checkpoint_40", "dry_run": True}
    precompile(tmp_path, relative_steps=20, **settings)
    (trainer,) = trainers
    full = toy.rate(40)
    rates = [trainer.learning_rate_fn(step) for step in (40, 50, 60)]
    np.testing.assert_allclose(rates, [full, full / 2, 0], rtol=1e-6)
    with pytest.raises(ValueError, match="TRAIN_STEPS_REL"):
        precompile(tmp_path, **settings)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"train_dataset_cfg": toy.data(batch_size=7)}, "batch_size is 7"),
        ({"model": toy.model(vocab_size=128)}, "259 ids"),
        (
            {"infer_eval_dataset_cfg": toy.data("validation", task_feature_lengths=None)},
            "TASK_FEATURE_LENGTHS",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, changes, named):
    with pytest.raises(ValueError, match=named):
        precompile(tmp_path, dry_run=True, **changes)
