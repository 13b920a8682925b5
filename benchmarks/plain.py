"""The step as one writes it first, and as upstream's `examples/t5` has it, left to the compiler.

  with plainly():
      compiled = trainer.lower(shapes).compile()
  compile_step(request, module="benchmarks.plain")      # counted for a slice

Traced within, layers and their parameters stand one after the other instead of in a loop,
embeddings are looked up by a product with one-hot rows, and attention, feed-forward and cross
entropy have no gradients by hand, no sums taken early, and nothing kept for later by choice.
"""

import contextlib
import functools
from collections.abc import Iterator
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp

from benchmarks.synthetic_step import answer
from preflight.aot.compiler import serve
from t5x import losses
from t5x.examples.t5 import layers, network
from t5x.ops.attention import logits


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Puts the plain functions in the places of ours."""
    with contextlib.ExitStack() as patches:
        for module, name, plain in (
            (layers, "attend", attend),
            (layers, "feed_forward", feed_forward),
            (losses, "log_normalizer", functools.partial(jax.nn.logsumexp, axis=-1)),
            (layers.Embed, "__call__", embed),
            (network, "stack", stack),
        ):
            patches.enter_context(mock.patch.object(module, name, plain))
        yield


def attend(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """See `t5x.ops.attention.attend`."""
    weights = jax.nn.softmax(logits(q_BQHK, k_BSHK, mask, bias)).astype(v_BSHK.dtype)
    return jnp.einsum("BHQS,BSHK->BQHK", weights, v_BSHK)


def feed_forward(activations, x_BID, keep_B1F, wi_DF, wo_FD) -> jax.Array:
    """See `t5x.ops.feed_forward.feed_forward`."""
    projected = (f(jnp.dot(x_BID, wi)) for f, wi in zip(activations, wi_DF, strict=True))
    hidden_BIF = functools.reduce(jnp.multiply, projected)
    return jnp.dot(hidden_BIF if keep_B1F is None else hidden_BIF * keep_B1F, wo_FD)


def embed(self: layers.Embed, tokens_BI: jax.Array) -> jax.Array:
    """See `layers.Embed.__call__`."""
    return jnp.dot(jax.nn.one_hot(tokens_BI, self.vocab_size, dtype=self.dtype), self.table())


def stack(layer: type[nn.Module], config: network.T5Config, length: int, broadcast: int):
    """See `network.stack`; each layer has parameters of its own, `layers_0` and so on."""

    def run(x, *args):
        for i in range(length):
            x, _ = layer(config, name=f"layers_{i}")(x, *args)
        return x, None

    return run


if __name__ == "__main__":
    with plainly():
        serve(answer)
