"""A valid run on the mini corpus, whose arguments tests change, and an isolated gin config."""

import argparse
import contextlib
import dataclasses
import functools

import seqio

import gin
import tasks.romanian
from fakes import toy
from preflight.aot import slices
from preflight.run_context import RunContext
from t5x import adafactor, models, optimizers
from t5x.checkpointing.config import CheckpointConfig, SaveCheckpointConfig
from t5x.examples.encoder import network as encoder_network
from t5x.examples.encoder.model import MaskedLanguageModel
from t5x.examples.t5 import network
from t5x.input_pipeline.config import DatasetConfig
from t5x.partitioning import PjitPartitioner
from t5x.trainer import Trainer

TASK = "ro_mini_span_corruption"
TRAIN = DatasetConfig(TASK, {"inputs": 128, "targets": 29}, "train", 16, True, 0, pack=True)
assert tasks.romanian.RO_MINI  # its tasks are registered


def model(vocabulary=None, **settings) -> models.EncoderDecoderModel:
    """Return a model of one encoder and one decoder layer with the mini corpus's vocabulary."""
    sizes = {"vocab_size": 2048, "emb_dim": 16, "num_heads": 2, "head_dim": 8, "mlp_dim": 32}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dropout_rate": 0.0}
    vocabulary = vocabulary or seqio.SentencePieceVocabulary("data/ro_mini/ro_mini.model", 0)
    optimizer = adafactor.Adafactor(
        decay_rate=0.8, logical_factor_rules=adafactor.standard_logical_factor_rules()
    )
    config = network.T5Config(**{**sizes, **layers, **settings})
    module = network.Transformer(config=config)
    return models.EncoderDecoderModel(module, vocabulary, vocabulary, optimizer)


def encoder(task: str = "ro_mini_masked_lm", pack: bool = True) -> dict:
    """Return the changes that make the run one of a small BERT."""
    vocabulary = seqio.get_mixture_or_task(task).output_features["inputs"].vocabulary
    sizes = {"emb_dim": 16, "num_heads": 2, "num_layers": 1, "mlp_dim": 32, "max_length": 128}
    module = encoder_network.Bert(encoder_network.BertConfig(2048, **sizes))
    optimizer = optimizers.adamw(no_decay=("scale", "bias"))
    train = DatasetConfig(task, {"inputs": 128, "targets": 128}, "train", 16, True, 0, pack=pack)
    return {
        "model": MaskedLanguageModel(module, vocabulary, vocabulary, optimizer),
        "train_dataset_cfg": train,
        "train_eval_dataset_cfg": dataclasses.replace(train, split="validation", shuffle=False),
    }


def run(model_dir, **changes) -> argparse.Namespace:
    """Return the arguments of `train.train`, with `changes`."""
    arguments = {
        "model": model(),
        "train_dataset_cfg": TRAIN,
        "train_eval_dataset_cfg": dataclasses.replace(TRAIN, split="validation", shuffle=False),
        "infer_eval_dataset_cfg": None,
        "checkpoint_cfg": CheckpointConfig(saving(), None),
        "partitioner": PjitPartitioner(1),
        "trainer_cls": functools.partial(Trainer, learning_rate_fn=toy.rate),
        "model_dir": str(model_dir),
        "total_steps": 100,
        "relative_steps": None,
        "eval_steps": 3,
        "eval_period": 10,
        "stats_period": None,
        "actions": None,
        "random_seed": 0,
        "use_hardware_rng": False,
        "cooldown_from": None,
    }
    return argparse.Namespace(**{**arguments, **changes})


def saving(**changes) -> SaveCheckpointConfig:
    """Return the settings of a save every ten steps that keeps three checkpoints."""
    return SaveCheckpointConfig(**{"period": 10, "keep": 3, "save_dataset": True, **changes})


def context(model_dir="runs/valid_run", tpu="v4-8", offline=False, **changes) -> RunContext:
    """Return a valid run, with `changes`, on a slice."""
    return RunContext(run(model_dir, **changes), slices.find(tpu), offline)


SCRIPTS = ("train_script", "eval_script", "infer_script")


@contextlib.contextmanager
def gin_apart():
    """Provide an empty gin configuration, and restore the previous one at the end."""
    names = ("_REGISTRY", "_INVERSE_REGISTRY", "_IMPORTS")
    state = {name: getattr(gin.config, name) for name in names}
    gin.clear_config()
    for name in names:
        setattr(gin.config, name, state[name].copy())
    # Another test may have registered a script of the trainer. A copy of gin's registry would share
    # its tree of names, so that a name taken out of it would be gone.
    of_script = lambda selector: selector.split(".")[0] in SCRIPTS
    gin.config._REGISTRY = type(state["_REGISTRY"])()
    for selector, value in state["_REGISTRY"].items():
        if not of_script(selector):
            gin.config._REGISTRY[selector] = value
    for function, value in state["_INVERSE_REGISTRY"].items():
        if of_script(value.selector):
            del gin.config._INVERSE_REGISTRY[function]
    try:
        yield
    finally:
        gin.clear_config()
        for name, value in state.items():
            setattr(gin.config, name, value)
