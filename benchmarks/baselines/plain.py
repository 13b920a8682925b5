"""The train step as upstream's `examples/t5` writes it, left to the compiler.

  with plainly():
      compiled = trainer.lower(shapes).compile()
  compile_step(request, module="benchmarks.baselines.plain")      # counted for a slice

In that context, layers and their parameters come one after the other instead of in a loop,
embeddings are looked up by a product with one-hot rows, and attention, feed-forward and cross
entropy have no hand-written gradients.
"""

import contextlib
from collections.abc import Iterator
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp

from benchmarks.synthetic_step import answer
from preflight.aot.compiler import serve
from t5x import losses
from t5x.examples.t5 import layers, network
from t5x.kernels import reference, select


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Replace our functions by the plain ones."""
    with contextlib.ExitStack() as patches:
        for module, name, plain in (
            (losses, "log_normalizer", reference.log_normalizer),
            (layers.Embed, "__call__", embed),
            (network, "stack", stack),
            (select, "attention", lambda config: "plain"),
            *((select, name, getattr(reference, name)) for name in ("feed_forward", "rms_norm")),
        ):
            patches.enter_context(mock.patch.object(module, name, plain))
        yield


def embed(self: layers.Embed, tokens_BI: jax.Array) -> jax.Array:
    """See `layers.Embed.__call__`."""
    return jnp.dot(jax.nn.one_hot(tokens_BI, self.vocab_size, dtype=self.dtype), self.table())


def stack(caller: nn.Module, layer: type[nn.Module], length: int, *_):
    """See `network.stack`; each layer has parameters of its own, `layers_0` and so on."""

    def run(x, *args):
        for i in range(length):
            x, _ = layer(caller.config, name=f"layers_{i}")(x, *args)
        return x, None

    return run


if __name__ == "__main__":
    with plainly():
        serve(answer)
