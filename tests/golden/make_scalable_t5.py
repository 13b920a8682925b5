"""Write scalable_t5/: checkpoints, logits and losses of upstream T5X's `examples/scalable_t5`.

    cd /tmp && <python of `bash launch/upstream.sh DIR`> <here>/make_scalable_t5.py

Run it outside of this repository, whose `t5x` would be imported instead of upstream's.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import seqio

from t5x import adafactor, checkpoints, models, partitioning, train_state
from t5x.examples.scalable_t5 import network

OUT = Path(__file__).resolve().parent / "scalable_t5"
RATE, Z_LOSS, SAVED, CONTINUED = 0.02, 1e-4, 3, 3
SIZES = {"vocab_size": 64, "emb_dim": 16, "num_heads": 4, "mlp_dim": 24, "dropout_rate": 0.0}
# umt5: the public layout, heads x head_dim below emb_dim. t5_1_1: layers apart, it is above.
NETWORKS = {
    "umt5": SIZES
    | {"head_dim": 2, "num_encoder_layers": 3, "num_decoder_layers": 2, "scan_layers": True},
    "t5_1_1": SIZES
    | {"head_dim": 8, "num_encoder_layers": 2, "num_decoder_layers": 2, "scan_layers": False},
    "tied": SIZES
    | {"head_dim": 4, "num_encoder_layers": 2, "num_decoder_layers": 1, "scan_layers": True}
    | {"param_scan_axis": 0, "logits_via_embedding": True},
}
GATED = ("gelu", "linear")


def batch(rng: np.random.Generator, vocab_size: int) -> dict[str, np.ndarray]:
    """Return a packed batch of 4 rows, the ends of its rows padding."""
    inputs, targets = rng.integers(2, vocab_size, (4, 9)), rng.integers(2, vocab_size, (4, 7))
    inputs[1, 6:] = targets[2, 4:] = 0
    segments_in, segments = (np.where(np.arange(x.shape[1]) < 3, 1, 2) for x in (inputs, targets))
    shifted = np.roll(targets, 1, axis=1)
    shifted[:, [0, 3]] = 0
    found = {
        "encoder_input_tokens": inputs,
        "encoder_segment_ids": np.where(inputs > 0, segments_in, 0),
        "decoder_input_tokens": shifted,
        "decoder_target_tokens": targets,
        "decoder_segment_ids": np.where(targets > 0, segments, 0),
        "decoder_loss_weights": targets > 0,
    }
    return {name: value.astype(np.int32) for name, value in found.items()}


def make(name: str, sizes: dict) -> None:
    """Write one network's folder."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    vocabulary = seqio.PassThroughVocabulary(sizes["vocab_size"])
    optimizer = adafactor.Adafactor(
        min_dim_size_to_factor=8, logical_factor_rules=adafactor.standard_logical_factor_rules()
    )
    module = network.Transformer(config=network.T5Config(**sizes, mlp_activations=GATED))
    model = models.EncoderDecoderModel(module, vocabulary, vocabulary, optimizer, z_loss=Z_LOSS)
    rng = np.random.default_rng(16)
    batches = [batch(rng, sizes["vocab_size"]) for _ in range(SAVED + CONTINUED)]
    shapes = {key: value.shape for key, value in batches[0].items()}
    variables = model.get_initial_variables(jax.random.PRNGKey(16), shapes)
    state = train_state.FlaxOptimTrainState.create(optimizer, variables)
    # A scale of 1 in every norm, as it is at first, would hide layers that are exchanged.
    noisy = lambda x: x + 0.1 * rng.standard_normal(x.shape).astype(np.float32)
    state = state.replace_params(jax.tree_util.tree_map(noisy, state.params))
    gradient = jax.jit(jax.value_and_grad(model.loss_fn, has_aux=True))
    found = []
    for step, features in enumerate(batches):
        if step == SAVED:
            save(state, folder)
            logits = model._compute_logits(state.params, features)
        (loss, _), grads = gradient(state.params, features, None)
        state = state.apply_gradient(grads, learning_rate=RATE)
        found.append(float(loss))
    np.savez_compressed(
        folder / "continued.npz",
        logits=logits,
        loss=np.float32(found[SAVED:]),
        **{f"{k}/{i}": v for i, fs in enumerate(batches[SAVED:]) for k, v in fs.items()},
    )
    settings = {
        "config": {k: v for k, v in sizes.items() if "scan" not in k} | {"mlp_activations": GATED},
        "learning_rate": RATE,
        "z_loss": Z_LOSS,
        "step": SAVED,
        "min_dim_size_to_factor": 8,
    }
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")


def save(state: train_state.FlaxOptimTrainState, folder: Path) -> None:
    """Save as upstream does today, and umT5 in its older format too."""
    partitioner = partitioning.PjitPartitioner(num_partitions=1)
    if folder.name == "umt5":
        checkpoints.Checkpointer(state, partitioner, str(folder / "legacy")).save(state)
    (folder / "orbax").mkdir()  # else it writes beside it
    orbax = checkpoints.OrbaxCheckpointManagerInterface(str(folder / "orbax"), state, partitioner)
    orbax.save(state)
    orbax.close()


if __name__ == "__main__":
    for key, value in NETWORKS.items():
        make(key, value)
