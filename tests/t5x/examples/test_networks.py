"""What T5 and encoders have in common, whatever is padded, packed, rounded or dropped."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes import toy
from fakes.encoder_golden import EncoderGolden
from fakes.golden import Golden
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.kernels import select

INPUTS, TARGETS = 12, 8


class Network:
    """A golden network: its model by settings, its parameters, and whether it has a decoder."""

    def __init__(self, model: Callable[..., Any], params: dict, decodes: bool):
        self.model, self.params, self.decodes = model, params, decodes
        self.logits = jax.jit(model().logits)  # (params, batch) -> float32 [B, T, V]
        self.length = TARGETS if decodes else INPUTS

    def batch(self, changed: int | None = None) -> dict[str, np.ndarray]:
        """Two unpacked rows of random ids; one id of the second is another if `changed`."""
        random = np.random.default_rng(0)
        inputs, targets = (random.integers(4, 60, (2, n), np.int32) for n in (INPUTS, TARGETS))
        if changed is not None:
            inputs[1, changed] += 1
        shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
        decoder = {"decoder_input_tokens": shifted, "decoder_target_tokens": targets}
        return {"encoder_input_tokens": inputs} | (decoder if self.decodes else {})


@pytest.fixture(scope="module", params=["t5_1_1", "t5gemma2", "bert", "modernbert"])
def net(request):
    if request.param in ("toy", "t5gemma2"):
        make = toy.model if request.param == "toy" else toy.gemma
        return Network(make, toy.random_params(make().module.config), decodes=True)
    if request.param == "t5_1_1":
        golden = Golden("t5_1_1")
        return Network(golden.model, stack_layers(golden.tree("init_params")), decodes=True)
    golden = EncoderGolden(request.param)
    return Network(golden.model, golden.params("init"), decodes=False)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * max(1, np.abs(wanted).max()))


def with_segments(batch, segments, positions):
    """Add the segments and positions, [B, length] of a length, of each side of a batch."""
    sides = {"encoder": "encoder_input_tokens", "decoder": "decoder_target_tokens"}
    lengths = {side: batch[name].shape[1] for side, name in sides.items() if name in batch}
    made = {f"{side}_segment_ids": segments(n) for side, n in lengths.items()}
    return batch | made | {f"{side}_positions": positions(n) for side, n in lengths.items()}


def test_padding_changes_nothing(net):
    """For T5 it is id 0; for encoders what has no segment, whatever its id."""
    batch, ones = net.batch(), np.ones((2, INPUTS), np.int32)
    segments = {} if net.decodes else {"encoder_segment_ids": np.pad(ones, ((0, 0), (0, 5)))}
    for filler in (0,) if net.decodes else (0, 1, 7):
        wide = {k: np.pad(v, ((0, 0), (0, 5)), constant_values=filler) for k, v in batch.items()}
        found = net.logits(net.params, wide | segments)
        close(found[:, : net.length], net.logits(net.params, batch))


def test_packed_examples_have_the_logits_of_unpacked_ones(net):
    alone = net.batch()
    widen = lambda x: np.pad(x.reshape(1, -1), ((0, 0), (0, 3)))
    packed = with_segments(
        {k: widen(v) for k, v in alone.items()},
        lambda n: widen(np.repeat([1, 2], (n - 3) // 2)),
        lambda n: widen(np.tile(np.arange((n - 3) // 2), 2)),
    )
    found = net.logits(net.params, packed)[0, : 2 * net.length]
    close(found.reshape(2, net.length, -1), net.logits(net.params, alone))


def test_rows_are_independent_and_every_input_changes_every_position(net):
    before = net.logits(net.params, net.batch())
    for place in (0, INPUTS - 1):
        after = net.logits(net.params, net.batch(changed=place))
        np.testing.assert_array_equal(after[0], before[0])
        assert (np.abs(after[1] - before[1]).max(-1) > 1e-6).all()


def test_bfloat16_is_close_and_its_logits_are_float32(net):
    batch, wanted = net.batch(), net.logits(net.params, net.batch())
    found = jax.jit(net.model(dtype=jnp.bfloat16).logits)(net.params, batch)
    assert found.dtype == jnp.float32
    assert 0 < np.abs(found - wanted).mean() < 0.05 * np.abs(wanted).mean()


def test_dropout_needs_a_key_and_depends_on_it(net):
    apply, batch = jax.jit(net.model(dropout_rate=0.5).logits), net.batch()
    first, again, other = (apply(net.params, batch, jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-2


# One layer; both masks; keys of inputs and targets.
@pytest.mark.parametrize("net", ["toy", "modernbert", "t5gemma2"], indirect=True)
def test_kernels_of_a_gpu_have_the_same_logits(net, monkeypatch):
    """That their gradients are the same too, the kernels' own tests show."""
    batch, wanted = net.batch(), net.logits(net.params, net.batch())
    monkeypatch.setattr(select, "attention", lambda config: "flash")
    monkeypatch.setattr(select, "prefers_gpu_kernels", lambda: True)
    close(jax.jit(net.model().logits)(net.params, batch), wanted)


def test_parameters_are_initialized_as_they_are_used_in_float32(net):
    model, shapes = net.model(dtype=jnp.bfloat16), dict.fromkeys(net.batch(), (1, 1))
    found = jax.eval_shape(lambda: model.get_initial_variables(jax.random.key(0), shapes))
    kinds = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
    assert kinds(nn.unbox(found["params"])) == kinds(net.params)
    assert {x.dtype for x in jax.tree.leaves(net.params)} == {np.dtype("float32")}
