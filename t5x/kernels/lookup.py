"""Rows of a table, with a gradient that is summed in float32.

  rows_BID = lookup(table_VD, ids_BI)       # jnp.take(table_VD, ids_BI, axis=0)

JAX adds up the gradient of a bfloat16 table in bfloat16, token by token. A sum of more than 256
like terms then hardly grows: one of 65,536 tokens that share a row was a thirtieth of the true one.
A batch has as many of a token type, and thousands of a comma.
"""

import functools

import jax
import jax.numpy as jnp

FEW = 8  # rows whose gradient is a product: adding to them one by one, a GPU's threads would queue


def lookup(table_VD: jax.Array, ids: jax.Array) -> jax.Array:
    """Return the rows [..., D] of int32 ids [...], NaN for an id beyond the table."""
    return _lookup(table_VD.shape[0], table_VD, ids)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _lookup(_rows, table_VD, ids):
    return jnp.take(table_VD, ids, axis=0)


def _forward(rows, table_VD, ids):
    return _lookup(rows, table_VD, ids), ids


def _backward(rows, ids, gradient):
    if rows <= FEW:
        chosen = jax.nn.one_hot(ids, rows, dtype=gradient.dtype)
        table = jnp.einsum(
            "...V,...D->VD",
            chosen,
            gradient,
            preferred_element_type=jnp.float32,
            precision="highest",
        )
    else:
        zeros = jnp.zeros((rows, gradient.shape[-1]), jnp.float32)
        table = zeros.at[ids].add(gradient.astype(jnp.float32))
    return table.astype(gradient.dtype), None


_lookup.defvjp(_forward, _backward)
