"""Upstream T5X's own test files, run on the modules here.

    bash launch/upstream.sh DIR
    UPSTREAM_DIR=DIR python -m pytest -m slow tests/t5x/test_upstream_tests.py

The files say `from t5x import decoding` and get ours. `ADAPTERS` has the names by which they reach
what has another name or other arguments here. What still fails is in the table of
docs/t5x_compatibility.md with its reason, and nothing else is.
"""

import ast
import contextlib
import dataclasses
import fnmatch
import importlib.util
import os
import pathlib
import re
import sys
import time
import types
import unittest
from typing import Any
from unittest import mock

import flax.linen as nn
import flax.serialization
import flax.struct
import jax
import jax.numpy as jnp
import pytest
from absl import flags

from common.errors import UserError
from fakes.paths import ROOT
from t5x import adafactor, decoding, kv_cache, losses
from t5x.examples.t5 import layers
from t5x.gin_utils import rewrite_gin_args
from t5x.kernels import reference
from t5x.kernels.top_k import top_k
from t5x.partitioning import PjitPartitioner

FILES = (
    *("losses", "decoding", "adafactor", "trainer", "partitioning", "gin_utils"),
    *("examples/t5/network", "examples/t5/layers"),
)
ROW = r"\| `(\w+)_test` \| (`.*`) \| .* \|"
PAGE = (ROOT / "docs/t5x_compatibility.md").read_text()
DIFFERENCES = [(file, re.findall(r"`(.*?)`", tests)) for file, tests in re.findall(ROW, PAGE)]


def sample_once(inputs, cache, step, eos_id, rng, num_decodes=1, temperature=1.0, topk=20, **rest):
    """One decode of each row, as upstream's loop inside `temperature_sample` returns it."""
    decodes, scores = decoding.temperature_sample(
        inputs, cache, step, eos_id, rng, num_decodes, temperature, topk, **rest
    )
    return decodes[:, 0], scores[:, 0]


@flax.struct.dataclass
class OptimizerState:
    step: Any
    param_states: Any


@flax.struct.dataclass
class ParamState:
    v_row: Any
    v_col: Any
    v: Any
    m: Any


class Adafactor(adafactor.Adafactor):
    """Ours, which is given step, rate and axes, behind the methods of upstream's."""

    @property
    def hyper_params(self):
        return dataclasses.astuple(self)[:11]

    def create(self, params, state=None):
        state = self.init_state(params) if state is None else state
        saved = {"target": params, "state": flax.serialization.to_state_dict(state)}
        step = lambda grads: self.create(*self.apply_gradient(None, params, state, grads))
        return types.SimpleNamespace(state=state, state_dict=lambda: saved, apply_gradient=step)

    def init_state(self, params):
        states = self.init(params, self.axes(params))
        return OptimizerState(0, {name: ParamState(**state) for name, state in states.items()})

    def apply_gradient(self, hyper_params, params, state, grads):
        now = jnp.asarray(state.step), jnp.float32(self.learning_rate)
        states = {name: vars(each) for name, each in state.param_states.items()}
        params, states = self.update(grads, states, params, self.axes(params), *now)
        states = {name: ParamState(**each) for name, each in states.items()}
        return params, OptimizerState(state.step + 1, states)

    @staticmethod
    def axes(params):
        return jax.tree.map(lambda x: (None,) * x.ndim, params)


def weighted_cross_entropy(logits, targets, weights, label_smoothing, z_loss, divisor):
    loss, z_loss = losses.cross_entropy(logits, targets, z_loss, label_smoothing)
    sums = jnp.sum(loss * weights), jnp.sum(z_loss * weights)
    return *(each / divisor for each in sums), weights.sum()


class Attention(layers.Attention):
    """Ours, called as upstream's."""

    dropout_rate: float = 0.0
    dtype: Any = jnp.float32

    def __call__(self, inputs_q, inputs_kv, mask=None, bias=None):
        """Attend without dropout."""
        return super().__call__(inputs_q, inputs_kv, mask, bias)


class Embed(layers.Embed):
    """Ours, whose parameters are in no boxes."""

    def init(self, *arguments):
        """Return the parameters as arrays."""
        return nn.unbox(super().init(*arguments))


def in_upstreams_words(args):
    """Ours, whose error names the flag, in upstream's sentence."""
    try:
        return rewrite_gin_args(args)
    except UserError as error:
        form = "Gin bindings must be of the form '--gin.<param>=<value>', got: "
        raise ValueError(form + error.setting) from error


# By file what it finds in our modules besides our names.
ADAPTERS = {
    "losses": {
        "losses.compute_weighted_cross_entropy": lambda *arrays, loss_normalizing_factor, **rest: (
            weighted_cross_entropy(*arrays, **rest, divisor=loss_normalizing_factor)
        ),
        "losses.get_loss_normalizing_factor_and_weights": lambda loss_normalizing_factor, batch: (
            losses.normalizing_factor_and_weights(loss_normalizing_factor, batch)
        ),
    },
    "decoding": {
        "decoding._temperature_sample_single_trial": sample_once,
        "decoding.flatten_beam_dim": lambda x: x.reshape(-1, *x.shape[2:]),
        "decoding.flat_batch_beam_expand": lambda x, beam_size: kv_cache.repeat_rows(
            x, len(x), beam_size, 0
        ),
        "decoding.top_k_two_stage": top_k,
    },
    "adafactor": {
        "adafactor.Adafactor": Adafactor,
        "adafactor._AdafactorHyperParams": lambda *values: values,
        "adafactor._AdafactorParamState": ParamState,
        "optimizers.OptimizerState": OptimizerState,
        "optimizers.MultiOptimizer": None,
    },
    # The tests of actions make these before they start, and ask them nothing.
    "trainer": {
        "models.BaseModel": object,
        "trainer._time": time.monotonic,
        **dict.fromkeys(
            (
                *("trainer.Trainer", "train_state.FlaxOptimTrainState", "optimizers.Optimizer"),
                *("optimizers.OptimizerState", "optimizers.sgd"),
            ),
            lambda *arguments, **others: mock.Mock(),
        ),
    },
    "examples/t5/layers": {
        "examples.t5.layers.MultiHeadDotProductAttention": Attention,
        "examples.t5.layers.dot_product_attention": lambda query, key, value, bias, **dropout: (
            reference.attend(query, key, value, None, bias)
        ),
        "examples.t5.layers.Embed": lambda num_embeddings, features, **rest: Embed(
            num_embeddings, features, **rest
        ),
        "examples.t5.layers.DenseGeneral": lambda features, kernel_init: layers.Dense(
            features, ("embed", "mlp"), kernel_init
        ),
    },
    "gin_utils": {"gin_utils.rewrite_gin_args": in_upstreams_words},
    "partitioning": {
        "partitioning.default_mesh": lambda count: PjitPartitioner(count).mesh,
    },
}


@pytest.fixture
def root(monkeypatch):
    """Upstream's package; what its tests import is found while they run."""
    if not (folder := os.environ.get("UPSTREAM_DIR")):
        pytest.skip("UPSTREAM_DIR names no folder that launch/upstream.sh made")
    folder = pathlib.Path(folder)
    # Last, so that only what is not installed here comes from there.
    packages = [*folder.glob("venv/lib/*/site-packages")]
    packages.append(folder / "text-to-text-transfer-transformer")
    monkeypatch.setattr(sys, "path", [*sys.path, *map(str, packages)])
    flags.FLAGS(["tests"], known_only=True)
    return folder / "t5x/t5x"


def fill(module, path):
    """Run a file of upstream's helpers for tests, without those that need what is not here."""
    for statement in ast.parse(path.read_text()).body:
        with contextlib.suppress(ImportError, AttributeError, NameError):
            exec(compile(ast.Module([statement], []), path, "exec"), vars(module))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_upstreams_tests_pass_or_the_page_says_why_not(name, root, monkeypatch):
    for target, stand_in in ADAPTERS.get(name, {}).items():
        monkeypatch.setattr(f"t5x.{target}", stand_in, raising=False)
    helpers = types.ModuleType("t5x.test_utils")
    monkeypatch.setitem(sys.modules, helpers.__name__, helpers)
    monkeypatch.setattr("t5x.test_utils", helpers, raising=False)
    fill(helpers, root / "test_utils.py")

    file = f"{pathlib.Path(name).name}_test"
    spec = importlib.util.spec_from_file_location(file, root / f"{name}_test.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file, module)
    spec.loader.exec_module(module)
    tests = [
        each for suite in unittest.defaultTestLoader.loadTestsFromModule(module) for each in suite
    ]
    name_of = lambda each: each.id().split(".", 2)[2]
    result = unittest.TestResult()
    unittest.TestSuite(tests).run(result)
    failed = {name_of(each): text for each, text in [*result.failures, *result.errors]}
    patterns = [each for f, several in DIFFERENCES if f"{f}_test" == file for each in several]
    matching = {p: fnmatch.filter(map(name_of, tests), p) for p in patterns}
    bad = {each.id() for each, _ in [*result.failures, *result.errors]}
    print(f"{file}: {len(tests) - len(bad)} of {len(tests)} pass")
    assert tests
    assert all(matching.values()), f"the page lists tests that {file} does not have: {matching}"
    listed = {each for several in matching.values() for each in several}
    assert not failed.keys() - listed, "\n".join(
        f"{each}: {failed[each]}" for each in sorted(failed.keys() - listed)
    )
    assert not listed - failed.keys(), "the page lists tests that pass"
