"""Upstream's golden numbers as trees and models; see tests/golden/README.md."""

import functools
import json

import numpy as np

from fakes.paths import GOLDEN

FACTORS = (None, 100.0, "NUM_REAL_TARGET_TOKENS", "NUM_TOTAL_TARGET_TOKENS", "AVERAGE_PER_SEQUENCE")
BATCHES = ("packed", "weighted", "without_weights", "unpacked")


def changed(batch: dict, how: str) -> dict:
    """Return the batch with fractional weights, as unpacked rows, or without weights.

    Without weights padding counts. What a network computes there is arbitrary, so that batch is cut
    to the targets that are padding in no row.
    """
    batch = dict(batch)
    if how == "weighted":
        pattern = np.resize(np.float32([1, 0.5, 0, 0.25, 1]), batch["decoder_loss_weights"].shape)
        batch["decoder_loss_weights"] = batch["decoder_loss_weights"] * pattern
    if how == "without_weights":
        cut = (batch.pop("decoder_loss_weights") > 0).sum(-1).min()
        batch = {k: v[:, :cut] if k.startswith("decoder") else v for k, v in batch.items()}
    if how == "unpacked":
        batch = {k: v for k, v in batch.items() if not k.endswith(("_segment_ids", "_positions"))}
    return batch


class Golden:
    """Upstream's numbers for one architecture; see tests/golden/README.md."""

    def __init__(self, name: str):
        self.folder = GOLDEN / name
        self.settings = json.loads((self.folder / "config.json").read_text())

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self.folder / f"{name}.npz") as file:
            return {key: file[key] for key in file.files}

    def tree(self, name: str, under: str = "") -> dict:
        from flax.traverse_util import unflatten_dict

        arrays = self.arrays(name).items()
        under = [p for p in under.split("/") if p]
        keys = {tuple(key.split("/")): value for key, value in arrays}
        return unflatten_dict(
            {k[len(under) :]: v for k, v in keys.items() if list(k[: len(under)]) == under}
        )

    def batch(self, step: int) -> dict[str, np.ndarray]:
        arrays = self.arrays("batches")
        return {
            key.rsplit("/", 1)[0]: value
            for key, value in arrays.items()
            if key.rsplit("/", 1)[1] == str(step)
        }

    def model(self, **settings):
        from t5x import adafactor, models
        from t5x.examples.t5 import network

        config = {**self.settings["config"], **settings}
        optimizer = adafactor.Adafactor(
            decay_rate=0.8,
            min_dim_size_to_factor=self.settings.get("min_dim_size_to_factor", 128),
            logical_factor_rules=adafactor.standard_logical_factor_rules(),
        )
        return models.EncoderDecoderModel(
            module=network.Transformer(config=network.T5Config(**config)),
            input_vocabulary=Vocabulary(),
            output_vocabulary=Vocabulary(),
            optimizer_def=optimizer,
            z_loss=self.settings["z_loss"],
        )


def jitted_step(model, specs, rate, **settings):
    """Return the compiled train step of a model, at the learning rate `rate(step)`."""
    import jax

    from t5x.train_step import train_step

    step = functools.partial(
        train_step,
        loss_fn=model.loss_fn,
        optimizer=model.optimizer_def,
        axes=specs.axes,
        learning_rate_fn=rate,
        **settings,
    )
    return jax.jit(step)


class Vocabulary:
    """The attributes of a vocabulary that a model reads."""

    eos_id = 1
