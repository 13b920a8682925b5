"""FLOP of a step and for the same loss, of every objective and optimizer that needs fewer steps.

    python benchmarks/flops.py

Products with parameters, of attention (all keys, masked or not) and of logits, as
`t5x.monitoring.flops` counts them, for gin/ro_t5x_base.gin and batches of 128 rows. A
row of UL2's mixture has one example, padded to the longest, or two. The steps for the same loss are
those measured with 2 million parameters (`benchmarks/README.md`), where no row was padded.
"""

from preflight.aot.recipe import Recipe, load
from t5x.examples.t5.network import T5Config
from t5x.monitoring.flops import step_flops
from tasks import vocabularies
from tasks.objectives import ul2

ROWS, INPUTS, TARGETS = 128, 512, 114
STEPS_OF_UL2 = 250 / 440
STEPS_OF_MUON = {"rsqrt_decay": 1 / 2.18, "a straight line to zero": 1 / 1.70}
FILL = 2.0  # examples in a row of two, measured by tests/t5x/input_pipeline/test_open_rows.py
NEWTON_SCHULZ = 5  # iterations of Muon


def muon_flops(config: T5Config) -> float:
    """Return the FLOP of one orthogonalization of all kernels: X·Xᵀ, its square, times X."""
    c = config
    attention = [(c.emb_dim, c.num_heads * c.head_dim)] * 4
    mlp = [(c.emb_dim, c.mlp_dim)] * (len(c.mlp_activations) + 1)
    kernels = c.num_encoder_layers * (attention + mlp)
    kernels += c.num_decoder_layers * (2 * attention + mlp)
    sides = [(min(shape), max(shape)) for shape in kernels]
    return NEWTON_SCHULZ * sum(4.0 * m * m * n + 2.0 * m**3 for m, n in sides)


def main() -> None:
    """Print the table."""
    vocabulary = vocabularies.sentencepiece(vocabularies.ro_mini_model)
    base = load(Recipe(("gin/ro_t5x_base.gin",))).model.module.config
    spans = step_flops(base, ROWS, INPUTS, TARGETS)
    longest = max(n.targets for n in ul2.UL2.lengths_of_each(INPUTS, vocabulary))
    one = step_flops(base, ROWS, INPUTS, longest) / spans
    pair = ul2.UL2.lengths(2 * INPUTS, vocabulary).targets
    two = step_flops(base, ROWS, 2 * INPUTS, pair) / spans / FILL
    muon = 1 + muon_flops(base) / spans
    rows = [
        (f"UL2, one example a row of {INPUTS}/{longest}", STEPS_OF_UL2, one),
        (f"UL2, two examples a row of {2 * INPUTS}/{pair}", STEPS_OF_UL2, two),
        *((f"Muon, against Adafactor with {name}", n, muon) for name, n in STEPS_OF_MUON.items()),
    ]
    print("| | steps | FLOP a step | FLOP for the same loss |\n|---|---|---|---|")
    for name, steps, flops in rows:
        print(f"| {name} | {steps:.2f} | {flops:.2f} | {steps * flops:.2f} |")
    print(f"\ntwo examples for one: {two / one:.2f}")
    half = step_flops(base, ROWS, INPUTS, ul2.UL2.lengths(INPUTS, vocabulary).targets) / spans
    print(f"rows of {INPUTS} with two examples of half the text each, for one: {half / one:.2f}")


if __name__ == "__main__":
    main()
