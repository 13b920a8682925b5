"""Orthogonalized matrices, each computed once over the slice.

A Newton-Schulz iteration multiplies a matrix with itself, so that no device can compute it from a
part of the matrix. By default every device computes the steps of all matrices. Here all matrices of
one shape, including scanned layers', are one stack, which is cut between matrices.
"""

from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax.contrib

from t5x import partitioning

Dims: TypeAlias = tuple[int, ...]


def orthogonalize(
    arrays: Sequence[jax.Array],
    dimensions: Sequence[tuple[Dims, Dims]],
    steps: int,
    epsilon: float,
) -> list[jax.Array]:
    """Return the matrices of `arrays` with singular values near 1 and the same singular vectors.

    Args:
      arrays: each of one or more matrices, float32.
      dimensions: of each array, which of its dimensions are the rows and which the columns of a
        matrix; the others count matrices.
      steps: Newton-Schulz iterations (Jordan 2024); after 5 the values are between 0.5 and 1.5.
      epsilon: added to the Frobenius norm that a matrix is first divided by.
    """
    stacks = [_stack(x, *d) for x, d in zip(arrays, dimensions, strict=True)]
    for shape in {stack.shape[1:] for stack in stacks}:
        members = [i for i, stack in enumerate(stacks) if stack.shape[1:] == shape]
        counts = [len(stacks[i]) for i in members]
        together = partitioning.spread(jnp.concatenate([stacks[i] for i in members]))
        parts = jnp.split(_newton_schulz(together, steps, epsilon), np.cumsum(counts))
        for i, part in zip(members, parts, strict=False):  # a last part is what `spread` has added
            stacks[i] = part
    return [_unstack(s, x.shape, *d) for s, x, d in zip(stacks, arrays, dimensions, strict=True)]


def _newton_schulz(matrices: jax.Array, steps: int, epsilon: float) -> jax.Array:
    """Orthogonalize [N, rows, columns] by optax's Muon, without its momentum."""
    numbers = optax.contrib.MuonDimensionNumbers((1,), (2,))
    transformation = optax.contrib.scale_by_muon(
        ns_steps=steps, beta=0.0, eps=epsilon, nesterov=False, weight_dimension_numbers=numbers
    )
    return transformation.update(matrices, transformation.init(matrices))[0]


def _order(shape: Dims, rows: Dims, columns: Dims) -> tuple[Dims, Dims]:
    """Return the order of dimensions that makes a stack of wide matrices, and their sizes."""
    count = tuple(i for i in range(len(shape)) if i not in (*rows, *columns))
    size = lambda dims: int(np.prod([shape[i] for i in dims]))
    # Orthogonalization commutes with transposition, and the products are of rows.
    rows, columns = sorted((rows, columns), key=size)
    return (*count, *rows, *columns), (size(count), size(rows), size(columns))


def _stack(array: jax.Array, rows: Dims, columns: Dims) -> jax.Array:
    order, sizes = _order(array.shape, rows, columns)
    return array.transpose(order).reshape(sizes)


def _unstack(stack: jax.Array, shape: Dims, rows: Dims, columns: Dims) -> jax.Array:
    order, _ = _order(shape, rows, columns)
    return stack.reshape([shape[i] for i in order]).transpose(np.argsort(order))
