"""A copying task that a tiny network learns in a few steps, as seqio tasks, and runs on it.

An example's inputs are a few letters, its targets the same letters: `abca` to `abca`.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import ClassVar
from unittest import mock

import flax
import jax
import numpy as np
import seqio
import tensorflow as tf

from common.source import CorpusTask, Source
from t5x import adafactor, checkpoints, decoding, models, schedules
from t5x import train as train_module
from t5x.checkpointing.config import CheckpointConfig, SaveCheckpointConfig
from t5x.examples.t5 import network
from t5x.examples.t5gemma2 import network as t5gemma2
from t5x.input_pipeline import stream
from t5x.input_pipeline.config import DatasetConfig
from t5x.partitioning import PjitPartitioner
from t5x.train_state import StateSpecs, TrainState, state_specs, to_disk
from t5x.trainer import Trainer

VOCABULARY = seqio.ByteVocabulary()
SPLITS = {"train": 96, "validation": 20}
LENGTHS = {"inputs": 16, "targets": 16}
TASK, BARE, MIXED = "toy_copy", "toy_bare", "toy_mixed"


def texts(split: str) -> list[str]:
    """Return the texts of a split, 2 to 7 letters each."""
    random = np.random.default_rng(list(SPLITS).index(split))
    return [
        "".join(random.choice(list("abcd"), random.integers(2, 8))) for _ in range(SPLITS[split])
    ]


def dataset(split: str, shuffle_files: bool = False, seed: int | None = None) -> tf.data.Dataset:
    """Return pairs of equal texts."""
    both = texts(split)
    return tf.data.Dataset.from_tensor_slices({"inputs": both, "targets": both})


def same(targets, predictions):
    """Return the share of exact predictions."""
    return {"exact": float(np.mean([t == p for t, p in zip(targets, predictions, strict=True)]))}


def likelihood(targets, scores):
    """Return the mean log-likelihood."""
    return {"likelihood": float(np.mean(scores))}


def classifier(name: str, labels: Mapping[str, str]) -> CorpusTask:
    """Return a task whose classes have these labels, by which the model writes the values."""
    task = CorpusTask(name, source=seqio.FunctionDataSource(dataset, SPLITS), output_features={})
    task.labels = lambda: labels
    return task


class CountedSource(seqio.FunctionDataSource, Source):
    """A source that says of its records what a test sets."""

    counts: Mapping[str, int] = {}

    def record_counts(self, split=None):
        """Return `counts`."""
        return dict(self.counts)


def add_task(name: str, **settings) -> None:
    """Register a task of the toy language if it is not registered yet."""
    if name not in seqio.TaskRegistry.names():
        feature = seqio.Feature(VOCABULARY, add_eos=True)
        seqio.TaskRegistry.add(
            name,
            source=CountedSource(dataset, list(SPLITS), num_input_examples=SPLITS),
            preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
            output_features={"inputs": feature, "targets": feature},
            shuffle_buffer_size=32,
            **settings,
        )


add_task(TASK, metric_fns=[same, likelihood])
add_task(BARE)
if MIXED not in seqio.MixtureRegistry.names():
    seqio.MixtureRegistry.add(MIXED, [TASK, BARE], default_rate=1.0)


def model(**settings) -> models.EncoderDecoderModel:
    """Return a model of one encoder and one decoder layer."""
    sizes = {"vocab_size": 264, "emb_dim": 16, "num_heads": 2, "head_dim": 8, "mlp_dim": 32}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dropout_rate": 0.0}
    config = network.T5Config(**{**sizes, **layers, **settings})
    optimizer = adafactor.Adafactor(
        decay_rate=0.8, logical_factor_rules=adafactor.standard_logical_factor_rules()
    )
    module = network.Transformer(config=config)
    # Greedy, which compiles sooner than a beam search.
    return models.EncoderDecoderModel(
        module, VOCABULARY, VOCABULARY, optimizer, decode_fn=decoding.temperature_sample
    )


def gemma(**settings) -> models.EncoderDecoderModel:
    """Return a T5Gemma 2 of two layers, whose two heads share their keys and values."""
    sizes = {"vocab_size": 264, "emb_dim": 16, "num_heads": 2, "num_kv_heads": 1, "head_dim": 16}
    layers = {"mlp_dim": 32, "num_encoder_layers": 1, "num_decoder_layers": 2}
    config = t5gemma2.T5Gemma2Config(**{**sizes, **layers, **settings})
    return dataclasses.replace(model(), module=t5gemma2.T5Gemma2(config=config))


@functools.cache
def shared_model() -> models.EncoderDecoderModel:
    """Return the same model each time, whose initial values are traced once."""
    return model()


def state(specs: StateSpecs, seed: int = 0, step: int = 0) -> TrainState:
    """Return a state of random parameters, sharded as `specs`, without compiling anything."""
    random = np.random.default_rng(seed)
    drawn = lambda s: random.normal(0, 0.3, s.shape).astype(s.dtype)
    values = TrainState(
        np.int32(step),
        jax.tree.map(drawn, specs.state.params),
        jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), specs.state.param_states),
    )
    return jax.device_put(values, specs.shardings)


def save(folder: pathlib.Path, *steps: int) -> str:
    """Save a state of its own for each step in `folder`, and return that."""
    specs = state_specs(shared_model(), PjitPartitioner())
    with checkpoints.Checkpointer(str(folder), SaveCheckpointConfig()) as checkpointer:
        for step in steps:
            checkpointer.save(step, to_disk(state(specs, step, step), specs))
    return str(folder)


def data(split: str = "train", **settings) -> DatasetConfig:
    """Return the dataset configuration of the toy task."""
    defaults = {
        "mixture_or_task_name": TASK,
        "task_feature_lengths": LENGTHS,
        "split": split,
        "batch_size": 8,
        "shuffle": split == "train",
        "seed": 0,
        "pack": split == "train",
    }
    return DatasetConfig(**{**defaults, **settings})


def rate(step):
    """Return the learning rate of all runs."""
    return schedules.create_learning_rate_scheduler("constant", base_learning_rate=0.3)(step)


class SharedTrainer(Trainer):
    """A trainer of `shared_model` that traces equal train steps once a process, not once a run.

    A program depends on what its key holds: the shapes and shardings of the state and the batch,
    the mesh and its rules, the learning rate and the trainer's settings. Other models, which a test
    may change between two runs, are traced in each run. A test that patches what is traced passes
    `trainer_cls`.
    """

    _lowered: ClassVar[dict[tuple, jax.stages.Lowered]] = {}

    def lower(self, batch):
        """Return the train step of an equal trainer if there was one, else its own."""
        if self.model is not shared_model():
            return super().lower(batch)
        shapes, structure = jax.tree.flatten((self.specs.state, dict(batch)))
        mesh = (self.partitioner.mesh, tuple(self.partitioner.rules))
        settings = (self.learning_rate_fn, self.num_microbatches, self.bad_steps, self.rng.dtype)
        key = (structure, *shapes, *mesh, *settings, *sorted(self.xla_options.items()))
        if key not in self._lowered:
            self._lowered[key] = super().lower(batch)
        return self._lowered[key]


def train(model_dir, save=None, restore=None, trainer=None, **changes):
    """Call `train.train` with short periods, one device and two shards, and return its result.

    TensorFlow traces the pipeline of each shard, most of what so short a run takes.
    """
    save = {"period": 4, "keep": None, "save_dataset": True, **(save or {})}
    trainer = {"learning_rate_fn": rate, **(trainer or {})}
    arguments = {
        "model": shared_model(),
        "train_dataset_cfg": data(),
        "train_eval_dataset_cfg": None,
        "infer_eval_dataset_cfg": None,
        "checkpoint_cfg": CheckpointConfig(SaveCheckpointConfig(**save), restore),
        "partitioner": PjitPartitioner(devices=jax.devices()[:1]),
        "trainer_cls": functools.partial(SharedTrainer, **trainer),
        "model_dir": str(model_dir),
        "total_steps": 8,
        "eval_steps": 1,
        "eval_period": 4,
        "stats_period": 1,
        "random_seed": 0,
        "summarize_config_fn": lambda *_: None,
    }
    with mock.patch.object(stream, "SHARDS", 2):
        return train_module.train(**{**arguments, **changes})


# Networks whose probabilities are known, and random ones.

SMALL = network.T5Config(
    vocab_size=96,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_encoder_layers=1,
    num_decoder_layers=1,
    mlp_activations=("gelu", "linear"),
)


def random_params(config: network.T5Config | t5gemma2.T5Gemma2Config, seed: int = 0):
    """Return random parameters of a network."""
    ids = np.ones((1, 4), np.int32)
    is_gemma = isinstance(config, t5gemma2.T5Gemma2Config)
    init = lambda: (t5gemma2.T5Gemma2 if is_gemma else network.Transformer)(config).init(
        jax.random.PRNGKey(seed), ids, ids, ids, enable_dropout=False
    )
    shapes = flax.core.meta.unbox(jax.eval_shape(init)["params"])
    rng = np.random.default_rng(seed)
    draw = lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(np.float32) + (leaf.ndim == 1)
    return jax.tree.map(draw, shapes)


def unigram(config: network.T5Config, shares: np.ndarray):
    """Return parameters that give each id its share of the probability, whatever the text.

    All layers add nothing to embeddings of ones, so that the last norm returns ones, and the logits
    are the sums of the kernel's columns.
    """
    params = jax.tree.map(np.zeros_like, random_params(config))
    params["token_embedder"]["embedding"] += 1
    params["decoder"]["decoder_norm"]["scale"] += 1
    params["decoder"]["logits_dense"]["kernel"] += np.log(shares) / config.emb_dim
    return params
