"""README.md of a converted folder: the model card, with the hub's metadata.

text = card(Card(name="ro_t5x_tiny", step=1000, …))
"""

import dataclasses
from typing import Any

from convert.model_config import Sizes
from convert.run.loss_curve import thinned

_TOKENIZERS = "`AutoTokenizer` (ids are the trainer's, sentinels included)"


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What no checkpoint knows: given by the person who publishes."""

    language: tuple[str, ...] = ()
    license: str | None = None
    datasets: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Card:
    """All that the card tells."""

    name: str
    steps: tuple[int, ...]
    family: str
    sizes: Sizes
    parameters: int
    dtype: str
    proof: dict[str, Any] | None
    files: tuple[str, ...]
    has_tokenizer: bool
    gin: str | None = None
    curves: dict[str, list[tuple[int, float]]] = dataclasses.field(default_factory=dict)
    metadata: Metadata = Metadata()


def _front(card: Card) -> list[str]:
    lines = ["---", "library_name: transformers", "pipeline_tag: text2text-generation"]
    lines += ["tags:", "- t5", "- t5x", *([f"- {card.family}"] if card.family != "t5" else [])]
    if card.metadata.language:
        lines += ["language:", *(f"- {name}" for name in card.metadata.language)]
    if card.metadata.license:
        lines.append(f"license: {card.metadata.license}")
    if card.metadata.datasets:
        lines += ["datasets:", *(f"- {name}" for name in card.metadata.datasets)]
    last = {name: points[-1] for name, points in card.curves.items() if points}
    if last:
        lines += ["model-index:", f"- name: {card.name}", "  results:"]
    for name, (step, loss) in last.items():
        lines += [
            "  - task: {type: text2text-generation}",
            f"    dataset: {{name: {name}, type: {name}}}",
            f"    metrics: [{{name: loss at step {step}, type: loss, value: {loss:.4f}}}]",
        ]
    return [*lines, "---", ""]


def _proof(card: Card) -> str:
    if card.proof is None:
        return (
            "**Not verified**: converted with `--no_verify`, so nobody has compared this model's "
            "logits with the trainer's."
        )
    text = (
        f"Verified: on a fixed batch PyTorch's float32 logits differ from the trainer's by at most "
        f"{card.proof['largest_difference']:.1e} (largest logit "
        f"{card.proof['largest_logit']:.1f})."
    )
    if "largest_difference_from_float32" in card.proof:
        text += (
            " Rounding the weights to bfloat16 moved them by at most "
            f"{card.proof['largest_difference_from_float32']:.1e}."
        )
    return text


def _usage(card: Card) -> list[str]:
    untied = []
    if card.family == "umt5" and not card.sizes.tied:
        untied = ["model.config.tie_word_embeddings = False  # or transformers 5 scales the logits"]
    tokenizer = ["tokenizer = AutoTokenizer.from_pretrained(name)"] if card.has_tokenizer else []
    return [
        "## Use",
        "",
        "```python",
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        "",
        f'name = "{card.name}"',
        *tokenizer,
        "model = AutoModelForSeq2SeqLM.from_pretrained(name)",
        *untied,
        "```",
        "",
    ]


def _curve(card: Card) -> list[str]:
    lines = []
    for name, points in card.curves.items():
        if points:
            lines += [f"### {name}", "", "| step | loss |", "|---:|---:|"]
            lines += [f"| {step:,} | {loss:.4f} |" for step, loss in thinned(points)]
            lines.append("")
    return ["## Loss", "", *lines] if lines else []


def text(card: Card) -> str:
    """The card in Markdown, metadata first."""
    sizes = card.sizes
    steps = ", ".join(f"{step:,}" for step in card.steps)
    trained = f"after {steps} steps" if len(card.steps) == 1 else f"the mean of steps {steps}"
    rows = {
        "Parameters": f"{card.parameters:,}",
        "Network": f"{card.family}, {sizes.summary()}",
        "Heads": f"{sizes.num_heads} of {sizes.head_dim}, feed-forward {sizes.mlp_dim}",
        "Vocabulary": f"{sizes.vocab_size:,}",
        "Checkpoint": trained,
        "Weights": f"{card.dtype}: {', '.join(card.files)}",
        "Tokenizer": _TOKENIZERS if card.has_tokenizer else "none was converted",
    }
    lines = [*_front(card), f"# {card.name}", "", "Trained on the T5X gin interface.", ""]
    lines += ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items()), ""]
    lines += [_proof(card), "", *_usage(card), *_curve(card)]
    if card.gin:
        lines += ["## Configuration", "", "```python", card.gin.strip(), "```", ""]
    return "\n".join(lines)
