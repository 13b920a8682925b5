"""Parameters of small random networks, as a checkpoint would give them."""

import numpy as np

from convert import weight_map
from convert.model_config import Sizes
from t5x.checkpointing import lazy_array

SMALL = {
    "vocab_size": 96,
    "emb_dim": 16,
    "num_heads": 2,
    "head_dim": 12,  # so that heads x head_dim is not emb_dim
    "mlp_dim": 40,
    "num_encoder_layers": 3,
    "num_decoder_layers": 2,
}
FAMILIES = {
    "t5_1_0": Sizes(**SMALL, logits_via_embedding=True),
    "t5_1_1": Sizes(**SMALL, mlp_activations=("gelu", "linear")),
    "umt5": Sizes(**SMALL, mlp_activations=("gelu", "linear"), own_relative_bias=True),
}


def arrays(sizes: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 parameters by T5X path."""
    rng = np.random.default_rng(seed)
    return {
        tensor.source: rng.normal(0.5, 0.3, tensor.shape).astype(np.float32)
        if len(tensor.shape) == 1
        else rng.normal(0, 0.3, tensor.shape).astype(np.float32)
        for tensor in weight_map.tensors(sizes)
    }


def tree(values: dict[str, np.ndarray]) -> dict[str, lazy_array.LazyArray]:
    """The same as arrays that are read when asked for."""
    return {name: lazy_array.from_numpy(value) for name, value in values.items()}


def scanned(values: dict[str, np.ndarray], sizes: Sizes) -> dict[str, np.ndarray]:
    """The same network as T5X's scalable_t5 keeps it: layers on axis 1, heads apart."""
    found = {name: value for name, value in values.items() if "/layers_" not in name}
    for name in values:
        if "/layers_0/" not in name:
            continue
        stack, _, rest = name.split("/", 2)
        depth = getattr(sizes, f"num_{stack}_layers")
        layers = [values[f"{stack}/layers_{i}/{rest}"] for i in range(depth)]
        if rest.endswith(("query/kernel", "key/kernel", "value/kernel")):
            layers = [x.reshape(-1, sizes.num_heads, sizes.head_dim) for x in layers]
        elif rest.endswith("out/kernel"):
            layers = [x.reshape(sizes.num_heads, sizes.head_dim, -1) for x in layers]
        found[f"{stack}/{stack}/{rest}"] = np.stack(layers, axis=1)
    return found
