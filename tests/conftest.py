"""What every test relies on: eight fake CPU devices, no network, golden numbers as trees."""

import os
import signal

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["HF_HUB_OFFLINE"] = "1"

import json
import pathlib

import numpy as np
import pytest
from absl import logging

# A shell's background jobs ignore Ctrl-C, and so would what tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDEN = pathlib.Path(__file__).parent / "golden"


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
            decay_rate=0.8, logical_factor_rules=adafactor.standard_logical_factor_rules()
        )
        return models.EncoderDecoderModel(
            module=network.Transformer(config=network.T5Config(**config)),
            input_vocabulary=Vocabulary(),
            output_vocabulary=Vocabulary(),
            optimizer_def=optimizer,
            z_loss=self.settings["z_loss"],
        )


class Vocabulary:
    """The little that a model asks of a vocabulary."""

    eos_id = 1


@pytest.fixture(autouse=True)
def as_loud_as_before():
    """A door that a test opens may silence warnings, for its own process as it thinks."""
    before = logging.get_verbosity()
    yield
    logging.set_verbosity(before)


@pytest.fixture(scope="session", params=["t5_1_1", "t5_1_0"])
def golden(request) -> Golden:
    return Golden(request.param)
