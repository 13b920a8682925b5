"""The examples of docs/extending.md, taken from the page and run."""

import functools
import importlib
import json
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seqio

import gin

# Registered before `example` remembers the names that it leaves.
from fakes import toy
from fakes.pages import blocks, section
from t5x import gin_utils, models
from t5x.examples.t5 import network
from t5x.partitioning import PjitPartitioner
from t5x.train_state import TrainState, state_specs
from t5x.train_step import train_step

PAGE = "docs/extending.md"
LENGTHS = {"inputs": 32, "targets": 32}
TEXTS = {"title": "O zi de toamnă", "body": "Frunzele copacilor cad pe pământ, iar copiii merg."}


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Writes the examples of a section into an empty folder, and imports one of its modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    registries = (seqio.TaskRegistry, seqio.MixtureRegistry)
    before = [{*registry.names()} for registry in registries]
    modules = []

    def write(heading: str, module: str | None = None):
        for block in blocks(section(PAGE, heading)):
            name = block.text.splitlines()[0].removeprefix("# ")
            if name.endswith((".py", ".gin")):
                (tmp_path / name).write_text(block.text)
        if module is None:
            return None
        modules.append(module)
        return importlib.import_module(module)

    yield write
    gin.clear_config()
    for module in modules:
        sys.modules.pop(module, None)
    for registry, names in zip(registries, before, strict=True):
        for name in {*registry.names()} - names:
            registry.remove(name)


def first_example(task: str) -> dict[str, np.ndarray]:
    dataset = seqio.TaskRegistry.get(task).get_dataset(LENGTHS, "train", shuffle=False, seed=0)
    return next(dataset.as_numpy_iterator())


def test_a_corpus(example, tmp_path):
    (tmp_path / "my_texts").mkdir()
    lines = [json.dumps({**TEXTS, "title": f"{TEXTS['title']} {i}"}) for i in range(8)]
    empty = json.dumps(dict.fromkeys(TEXTS, ""))
    (tmp_path / "my_texts/train-0.jsonl").write_text("\n".join([empty, *lines]))
    example("A corpus", "my_corpus")
    source = seqio.TaskRegistry.get("my_corpus").source
    assert source.peek("train") == [f"{TEXTS['title']} 0\n{TEXTS['body']}"]
    found = first_example("my_corpus")
    assert 0 < len(found["inputs"]) <= 32
    assert 0 < len(found["targets"]) <= 32


def test_an_objective(example):
    module = example("An objective", "my_objective")
    assert module.SecondHalf().lengths(32) == (62, 32)
    found = first_example("ro_mini_second_half")
    vocabulary = seqio.TaskRegistry.get("ro_mini_second_half").output_features["inputs"].vocabulary
    for side in ("inputs", "targets"):
        assert len(found[side]) == 32
        assert found[side][-1] == vocabulary.eos_id
        assert vocabulary.eos_id not in found[side][:-1]


def test_an_optimizer(example):
    optimizer = example("An optimizer", "my_optimizer").Momentum(beta=0.5)
    params, axes = {"kernel": jnp.array([1.0, 2.0])}, {"kernel": ("embed",)}
    state = TrainState(jnp.int32(0), params, optimizer.init(params, axes))
    step = functools.partial(
        train_step,
        loss_fn=lambda params, batch, rng: ((params["kernel"] * batch).sum(), (1.0, {})),
        optimizer=optimizer,
        axes=axes,
        learning_rate_fn=lambda step: 0.1,
    )
    gradient = jnp.array([1.0, 3.0])
    once, _ = step(state, gradient, jax.random.key(0))
    np.testing.assert_allclose(once.params["kernel"], [0.9, 1.7], rtol=1e-6)
    twice, _ = step(once, gradient, jax.random.key(0))
    np.testing.assert_allclose(twice.params["kernel"], [0.75, 1.25], rtol=1e-6)
    assert optimizer.state_axes(params, axes) == axes
    assert bound("OPTIMIZER", "my_optimizer.gin").beta == 0.95


def bound(macro: str, *gin_files: str, bindings: tuple[str, ...] = ()):
    """Return the value of a macro of some gin files."""
    gin.clear_config()
    gin_utils.parse_gin_flags([], list(gin_files), list(bindings), finalize_config=False)
    with gin.config_scope(macro):
        return gin.get_configurable("gin.macro")()


def test_a_recipe(example):
    example("A recipe")
    model = bound("MODEL", "my_t5x_tiny.gin", bindings=("MODEL_DIR = 'runs/x'",))
    assert model.module.config.vocab_size == 2048
    assert gin.query_parameter("utils.SaveCheckpointConfig.period") == 100


def average_model(module) -> models.EncoderDecoderModel:
    config = network.T5Config(vocab_size=264, emb_dim=16, mlp_dim=32, dropout_rate=0.0)
    net = module.AverageNetwork(config)
    return module.AverageModel(net, toy.VOCABULARY, toy.VOCABULARY, toy.model().optimizer_def)


def test_a_model_family(example):
    model = average_model(example("A model family", "my_network"))
    batch = {f"{side}_input_tokens": np.ones((2, 4), np.int32) for side in ("encoder", "decoder")}
    batch["decoder_target_tokens"] = np.full((2, 4), 5, np.int32)
    specs = state_specs(model, PjitPartitioner())
    shapes = {name: ids.shape for name, ids in batch.items()}
    variables = model.get_initial_variables(jax.random.key(0), shapes)
    params = nn.unbox(variables["params"])
    assert jax.tree.structure(specs.state.params) == jax.tree.structure(params)
    gradients = jax.grad(lambda params: model.loss_fn(params, batch, None)[0])(params)
    assert all(abs(gradient).max() > 0 for gradient in jax.tree.leaves(gradients))
    ids, aux = model.predict_batch_with_aux(params, batch)
    assert ids.shape == (2, 4)
    assert aux["scores"].shape == (2,)


def test_a_metric(example, tmp_path):
    for name in ("train.ro", "train.en", "dev.ro", "dev.en"):
        (tmp_path / name).write_text("unu doi\ntrei\n")
    module = example("A metric", "my_metric")
    assert module.length_ratio([], []) == {"length_ratio": 0.0}
    task = seqio.TaskRegistry.get("my_pairs")
    (metric,) = task.predict_metric_fns
    dataset = task.get_dataset({"inputs": 32, "targets": 32}, "validation", shuffle=False)
    written = [example["targets_pretokenized"].decode() for example in dataset.as_numpy_iterator()]
    assert metric(written, ["unu", "trei"]) == {"length_ratio": pytest.approx(2 / 3)}
