"""Names for values whose structure the type checker cannot know, in one place.

`PyTree` is any nest of arrays. `Params` is a nest of arrays keyed by parameter path, `Batch` the
named arrays of one global batch, `HostBatch` the rows of it that this host prepares, and `Sums` the
sums of a step by name, see `t5x.metrics`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

PyTree: TypeAlias = Any
Params: TypeAlias = Any
Cache: TypeAlias = Any
KeysValues: TypeAlias = tuple[jax.Array, jax.Array]  # of one layer of attention
Batch: TypeAlias = Mapping[str, jax.Array]
HostBatch: TypeAlias = dict[str, np.ndarray]
Sums: TypeAlias = dict[str, jax.Array]
# Of type `jnp.dtype`, as the networks take it; jax 0.12 gives it another type.
FLOAT32: Any = jnp.float32
