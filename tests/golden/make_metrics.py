"""Write metrics.json: what upstream T5X reports of one step, for each way of weighting a loss.

    bash launch/upstream.sh DIR && cd /tmp && DIR/venv/bin/python <here>/make_metrics.py

A case is `factor|batch|microbatches`: the loss normalizing factor, what is done to batch 0 of
t5_1_1 (see `fakes.golden.changed`), and the parts that it is cut into. Its values are upstream's
metrics of the final parameters without dropout, and the norm of all gradients.
"""

import json
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fakes.golden import BATCHES, FACTORS, Golden, changed  # noqa: E402


def main() -> None:
    """Compute all cases with the `t5x` of this interpreter."""
    import jax
    import jax.numpy as jnp
    import seqio

    from t5x import adafactor, metrics, models, train_state, trainer
    from t5x.examples.t5 import network

    golden = Golden("t5_1_1")
    params = jax.tree.map(jnp.asarray, golden.tree("final_state", "target"))
    batch, settings = golden.batch(0), golden.settings
    vocabulary, found = seqio.PassThroughVocabulary(settings["config"]["vocab_size"]), {}
    for factor in FACTORS:
        model = models.EncoderDecoderModel(
            module=network.Transformer(config=network.T5Config(**settings["config"])),
            input_vocabulary=vocabulary,
            output_vocabulary=vocabulary,
            optimizer_def=adafactor.Adafactor(),
            z_loss=settings["z_loss"],
            loss_normalizing_factor=factor,
        )
        state = train_state.InferenceState(jnp.int32(0), params)
        for how in BATCHES:
            for parts in (1, 4):
                grads, sums, _ = trainer.accumulate_grads_microbatched(
                    model, state, changed(batch, how), None if parts == 1 else jax.random.key(0),
                    parts,
                )  # fmt: skip
                sums = metrics.set_step_metrics_num_steps(sums, 1)
                values = {
                    name: float(metric.compute())
                    for name, metric in sorted(sums.items())
                    if not name.startswith("timing/")
                }
                squares = [np.sum(np.square(np.float64(g))) for g in jax.tree.leaves(grads)]
                values["gradient_norm"] = float(np.sqrt(sum(squares)))
                found[f"{factor}|{how}|{parts}"] = values
    (HERE / "metrics.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
