"""Encoders train, are evaluated and resume through the same `train` as T5."""

import shutil

import jax
import numpy as np
import seqio
import tensorflow as tf

from fakes import toy
from fakes.scalars import scalars
from t5x import optimizers
from t5x.examples.encoder import network
from t5x.examples.encoder.model import MaskedLanguageModel
from t5x.input_pipeline.config import DatasetConfig

TASK, LENGTHS = "toy_masked_letters", {"inputs": 16, "targets": 16}
VOCABULARY = seqio.PassThroughVocabulary(16)
MASK = 3


def dataset(split, shuffle_files=False, seed=None):
    """Runs of one letter, the second of them masked: its neighbours say which it is."""
    random = np.random.default_rng(len(split))
    letters = random.integers(4, 12, 96)

    def examples():
        for i, letter in enumerate(letters):
            targets = np.full(3 + i % 4, letter, np.int32)
            inputs, weights = targets.copy(), np.zeros_like(targets)
            inputs[1], weights[1] = MASK, 1
            yield {"inputs": inputs, "targets": targets, "loss_weights": weights}

    spec = tf.TensorSpec([None], tf.int32)
    names = ("inputs", "targets", "loss_weights")
    return tf.data.Dataset.from_generator(examples, output_signature=dict.fromkeys(names, spec))


def data(split="train", **changes):
    if TASK not in seqio.TaskRegistry.names():
        feature = seqio.Feature(VOCABULARY, add_eos=False)
        seqio.TaskRegistry.add(
            TASK,
            source=seqio.FunctionDataSource(
                dataset, ["train", "validation"], {"train": 96, "validation": 96}
            ),
            preprocessors=[],
            output_features=dict.fromkeys(("inputs", "targets", "loss_weights"), feature),
        )
    settings = {"task_feature_lengths": LENGTHS, "batch_size": 8, "shuffle": False, "seed": 0}
    return DatasetConfig(TASK, split=split, pack=True, **{**settings, **changes})


def train(model_dir, total_steps, **changes):
    sizes = {"emb_dim": 16, "num_heads": 2, "num_layers": 1, "mlp_dim": 16, "max_length": 16}
    config = network.BertConfig(16, **sizes, dropout_rate=0.0, attention_dropout_rate=0.0)
    optimizer = optimizers.adamw(no_decay=("scale", "bias"))
    module = network.Bert(config)
    model = MaskedLanguageModel(module, VOCABULARY, VOCABULARY, optimizer, predicted_share=1.0)
    given = {
        "model": model,
        "train_dataset_cfg": data(),
        "train_eval_dataset_cfg": data("validation"),
        "trainer": {"learning_rate_fn": lambda step: 0.02},
        "save": {"period": 20},
        "total_steps": total_steps,
        "eval_period": 20,
    }
    return toy.train(model_dir, **{**given, **changes})


def test_an_encoder_learns_and_resumes_exactly(tmp_path):
    """A resumed run starts from the other's checkpoint at two thirds of its steps."""
    _, complete = train(tmp_path / "one", 60)
    shutil.copytree(tmp_path / "one/checkpoint_40", tmp_path / "two/checkpoint_40")
    _, resumed = train(tmp_path / "two", 60, train_eval_dataset_cfg=None)
    jax.tree.map(np.testing.assert_array_equal, complete, resumed)
    losses = scalars(tmp_path / "one/training_eval" / TASK, "loss")
    assert losses[60] < 1.0 < np.log(8)  # there are eight letters
