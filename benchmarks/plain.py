"""The step as one writes it first: attention, feed-forward and cross entropy left to the compiler.

  with plainly():
      compiled = trainer.lower(shapes).compile()

Traced within, the network and the loss are what they are elsewhere, without gradients by hand,
sums taken early, or anything kept for later by choice.
"""

import contextlib
import functools
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp

from t5x import losses
from t5x.attention import logits
from t5x.examples.t5 import layers


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Puts the plain functions in the places of ours."""
    with contextlib.ExitStack() as stack:
        for module, name, plain in (
            (layers, "attend", attend),
            (layers, "feed_forward", feed_forward),
            (losses, "log_normalizer", functools.partial(jax.nn.logsumexp, axis=-1)),
        ):
            stack.enter_context(mock.patch.object(module, name, plain))
        yield


def attend(q_BQHK, k_BSHK, v_BSHK, mask, bias) -> jax.Array:
    """See `t5x.attention.attend`."""
    weights = jax.nn.softmax(logits(q_BQHK, k_BSHK, mask, bias)).astype(v_BSHK.dtype)
    return jnp.einsum("BHQS,BSHK->BQHK", weights, v_BSHK)


def feed_forward(activations, x_BID, keep_B1F, wi_DF, wo_FD) -> jax.Array:
    """See `t5x.feed_forward.feed_forward`."""
    projected = (f(jnp.dot(x_BID, wi)) for f, wi in zip(activations, wi_DF, strict=True))
    hidden_BIF = functools.reduce(jnp.multiply, projected)
    return jnp.dot(hidden_BIF if keep_B1F is None else hidden_BIF * keep_B1F, wo_FD)
