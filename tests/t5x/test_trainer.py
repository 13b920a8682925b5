"""Compiled steps over a mesh: sums are a step behind, and nothing depends on the mesh."""

import threading
import types

import jax
import numpy as np
import pytest

from fakes import toy
from fakes.refuses import refuses
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs
from t5x.trainer import Trainer


def batch(seed):
    random = np.random.default_rng(seed)
    inputs, targets = (random.integers(1, 200, (8, n)).astype(np.int32) for n in (12, 10))
    shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    return {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": shifted,
        "decoder_target_tokens": targets,
    }


def trainer_over(partitioner, model=None, **settings):
    model = model or toy.shared_model()
    specs = state_specs(model, partitioner)
    state = toy.state(specs)
    return Trainer(
        model, state, partitioner, specs, jax.random.key(1), learning_rate_fn=toy.rate, **settings
    )


@pytest.fixture(scope="module")
def trained():
    """A trainer of two devices after three steps, and what it gave on the way."""
    trainer = trainer_over(PjitPartitioner(devices=jax.devices()[:2]))
    given = list(trainer.training_steps(map(batch, range(9)), until=3))
    return trainer, given


def test_sums_come_a_step_late_and_all_of_them(trained):
    trainer, given = trained
    assert [step for step, _ in given] == [1, 2, 3, 3]
    assert given[0][1] is None
    assert int(trainer.state.step) == 3
    losses = [float(sums["loss"]) for _, sums in given[1:]]
    assert len(set(losses)) == 3
    assert all(sums["steps"] == 1 for _, sums in given[1:])
    assert list(trainer.training_steps(iter(()), until=3)) == []  # not past the end


def test_eight_devices_with_four_partitions_compute_what_two_devices_do(trained):
    _, given = trained
    many = trainer_over(PjitPartitioner(num_partitions=4))
    many.compile({k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in batch(0).items()})
    many.wait_compiled()
    again = list(many.training_steps(map(batch, range(9)), until=3))
    for (_, a), (_, b) in zip(again[1:], given[1:], strict=True):
        np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-4)


def test_a_t5gemma2_computes_the_same_on_one_device_and_on_eight():
    model, losses = toy.gemma(), []
    for partitioner in (PjitPartitioner(devices=jax.devices()[:1]), PjitPartitioner(2)):
        steps = trainer_over(partitioner, model).training_steps(map(batch, range(9)), until=3)
        losses.append([float(sums["loss"]) for _, sums in [*steps][1:]])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert len({*losses[0]}) == 3


class FakeLowered:
    """A lowered step whose compilation waits for `go`, and then returns a name or raises."""

    def __init__(self, result):
        self.go, self.calls, self.result = threading.Event(), 0, result

    def compile(self):
        self.calls += 1
        self.go.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def background_trainer(monkeypatch, result):
    trainer = trainer_over(PjitPartitioner(devices=jax.devices()[:1]))
    lowered = FakeLowered(result)
    monkeypatch.setattr(trainer, "lower", lambda batch: lowered)
    return trainer, lowered


def test_a_step_compiles_in_the_background_once_and_is_waited_for(monkeypatch):
    trainer, lowered = background_trainer(monkeypatch, "a compiled step")
    for _ in range(2):  # again where the first checkpoint is damaged
        trainer.compile({})
    lowered.go.set()
    trainer.wait_compiled()
    assert lowered.calls == 1
    assert trainer.compile_seconds > 0


def test_what_fails_in_the_background_is_raised_where_it_is_waited_for(monkeypatch):
    trainer, lowered = background_trainer(monkeypatch, RuntimeError("RESOURCE_EXHAUSTED"))
    trainer.compile({})
    lowered.go.set()
    trainer.close()
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        trainer.wait_compiled()


def test_on_a_gpu_nothing_compiles_before_the_state_is_there(monkeypatch):
    trainer, lowered = background_trainer(monkeypatch, "a compiled step")
    lowered.go.set()
    device = types.SimpleNamespace(platform="gpu")
    mesh = types.SimpleNamespace(devices=np.array([device]))
    monkeypatch.setattr(trainer, "partitioner", types.SimpleNamespace(mesh=mesh))
    trainer.compile({})
    assert lowered.calls == 0
    trainer.wait_compiled()
    assert lowered.calls == 1


def test_an_evaluation_adds_batches_up_and_leaves_the_state(trained):
    trainer, _ = trained
    before = jax.device_get(trainer.state.params)
    both = trainer.evaluate([batch(10), batch(11)])
    alone = [trainer.evaluate([batch(i)]) for i in (10, 11)]
    mean = np.mean([x["loss_per_nonpadding_target_token"] for x in alone])
    np.testing.assert_allclose(both["loss_per_nonpadding_target_token"], mean, rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(trainer.state.params), before)


def test_a_batch_that_does_not_fit_names_what_to_set():
    partitioner = PjitPartitioner()
    specs = state_specs(toy.shared_model(), partitioner)
    trainer = Trainer(
        None, None, partitioner, specs, None, learning_rate_fn=None, num_microbatches=3
    )
    with refuses("train/utils.DatasetConfig.batch_size", 16):
        trainer.check_batch(16)
    trainer.check_batch(48)
