"""Who attends to whom: the examples packed into a row keep apart, and none reads the future.

    segments = Segments(decoder_segments_BQ, encoder_segments_BS)
    mask_B1QS = mask(segments)

Kernels that need no mask in memory read the segments themselves.

Shapes: B batch, Q queries, S keys.
"""

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class Segments:
    """Segment ids int32 [B, Q] and [B, S], 0 for padding: queries attend to their own segment.

    If `causal`, not to later keys, counted from the ends: the last query attends to the last key.
    With a `radius`, to keys at most so far away.
    """

    queries: jax.Array
    keys: jax.Array
    causal: bool = flax.struct.field(pytree_node=False, default=False)
    radius: int | None = flax.struct.field(pytree_node=False, default=None)


def mask(segments: Segments) -> jax.Array:
    """Return where a query attends to a key, bool [B, 1, Q, S].

    A query without any key, which is padding, attends to all, so that no softmax is empty. What it
    computes must not be used.
    """
    queries = segments.queries[:, None, :, None]
    seen = (queries == segments.keys[:, None, None, :]) & (queries > 0)
    distance = jnp.arange(seen.shape[3]) - jnp.arange(seen.shape[2])[:, None]
    if segments.causal:
        seen &= distance <= seen.shape[3] - seen.shape[2]
    if segments.radius is not None:
        seen &= jnp.abs(distance) <= segments.radius
    return seen | ~seen.any(-1, keepdims=True)
