"""Names for values whose structure the type checker cannot know, in one place.

`PyTree` is any nest of arrays. `Params` is a nest of arrays keyed by parameter path, `Batch` the
named arrays of one global batch, `HostBatch` the rows of it that this host prepares.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import numpy as np

PyTree: TypeAlias = Any
Params: TypeAlias = Any
Cache: TypeAlias = Any
Batch: TypeAlias = Mapping[str, jax.Array]
HostBatch: TypeAlias = dict[str, np.ndarray]
