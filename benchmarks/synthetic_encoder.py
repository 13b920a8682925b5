"""A train step of an encoder of given sizes, without gin, data or vocabulary: for benchmarks.

trainer, batch = train_step(EncoderRequest("v4-8", "bert", {}, batch=128, length=512), devices)

Run as a module it compiles an `EncoderRequest`, see `preflight.aot.compiler`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.synthetic_step import make_trainer
from preflight.aot import compiler, tpu_slices
from t5x import optimizers, partitioning
from t5x.examples.encoder import network
from t5x.examples.encoder.model import MaskedLanguageModel
from t5x.trainer import Trainer

VOCABULARY = 50304
# Configuration and module, length, batch, and the share of places that are predicted.
MODELS = {
    "bert": (network.BertConfig, network.Bert, 512, 128, 0.25),
    "modernbert": (network.ModernBertConfig, network.ModernBert, 1024, 32, 0.375),
}


@dataclasses.dataclass(frozen=True)
class EncoderRequest(compiler.Request):
    """A train step of a model of MODELS, in bfloat16; `network` are other fields of its sizes."""

    model: str
    network: Mapping[str, Any]
    batch: int
    length: int
    microbatches: int = 1
    dump: str | None = None
    MODULE: ClassVar[str] = "benchmarks.synthetic_encoder"


def answer(plain: Callable[..., Any] | None, request: dict[str, Any]) -> dict[str, Any]:
    """Compile a request in this process, with the module `plain` unless that is None."""
    devices = tpu_slices.find(request["slice"]).devices()
    step = train_step(EncoderRequest(**request), devices, plain)
    return compiler.measure_step(*step, request["dump"])


def train_step(
    request: EncoderRequest, devices: list[jax.Device], plain: Callable[..., Any] | None = None
) -> tuple[Trainer, dict[str, jax.ShapeDtypeStruct]]:
    """Return the trainer of `request` over `devices`, and its batch's shapes.

    The plain module has its parameters on each device, and computes logits of all places.
    """
    config, module, *_, share = MODELS[request.model]
    fields = {"vocab_size": VOCABULARY, "dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    if request.model == "bert":
        fields["next_sentence"] = False
    sizes = config(**{**fields, "dtype": jnp.bfloat16, **request.network})
    adamw = optimizers.adamw(0.9, 0.98, 1e-6, 0.01, ("scale", "bias"), 1.0)
    model = MaskedLanguageModel(
        (plain or module)(sizes), None, None, adamw, predicted_share=1.0 if plain else share
    )
    rules = partitioning.standard_logical_axis_rules(parameter_partitioning_dims=1 if plain else 2)
    partitioner = partitioning.PjitPartitioner(1, devices=devices, logical_axis_rules=rules)
    batch, rate = batch_shapes(request.batch, request.length), ("constant * linear_warmup", 1e-3)
    return make_trainer(model, partitioner, batch, request.microbatches, *rate), batch


def batch_shapes(rows: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes of a packed batch."""
    names = ("input_tokens", "target_tokens", "segment_ids", "positions")
    kinds = {f"encoder_{name}": jnp.int32 for name in names}
    kinds["encoder_loss_weights"] = jnp.float32
    return {k: jax.ShapeDtypeStruct((rows, length), kind) for k, kind in kinds.items()}


def synthetic_batch(rows: int, length: int) -> dict[str, np.ndarray]:
    """Return random ids in rows of three texts and a little padding, a quarter to predict."""
    rng, places = np.random.default_rng(0), np.arange(length)
    starts = np.array([0, 0.3, 0.45]) * length // 1
    segments = np.where(places < 0.97 * length, np.searchsorted(starts, places, "right"), 0)
    positions = places - starts[segments - 1] * (segments > 0)
    row = lambda x: np.tile(x.astype(np.int32), (rows, 1))
    ids = rng.integers(5, VOCABULARY, (rows, length), np.int32) * row(segments > 0)
    predicted = (rng.random((rows, length)) < 0.25) & (ids > 0)
    arrays = (ids, ids, row(segments), row(positions), predicted.astype(np.float32))
    return dict(zip(batch_shapes(rows, length), arrays, strict=True))


if __name__ == "__main__":
    compiler.serve(functools.partial(answer, None))
