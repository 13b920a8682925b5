"""README.md of a converted folder: the model card, with the hub's metadata."""

import dataclasses
import math
from typing import Any

import yaml

from convert.model_config import Sizes
from convert.run.loss_curve import thinned

_TOKENIZERS = "`AutoTokenizer` (ids are the trainer's, sentinels included)"


@dataclasses.dataclass(frozen=True)
class CardMetadata:
    """What no checkpoint knows: given by the person who publishes it."""

    language: tuple[str, ...] = ()
    license: str | None = None
    datasets: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """A run's name and network, the record of its conversion, its weight files, gin and losses."""

    name: str
    sizes: Sizes
    record: dict[str, Any]
    files: tuple[str, ...]
    gin: str | None = None
    curves: dict[str, list[tuple[int, float]]] = dataclasses.field(default_factory=dict)

    def text(self) -> str:
        """Return the card in Markdown, metadata first."""
        lines = [*self._metadata(), f"# {self.name}", "", "Trained on the T5X gin interface.", ""]
        lines += ["| | |", "|---|---|"]
        lines += [f"| {key} | {value} |" for key, value in self._facts().items()]
        lines += ["", self._proof(), "", *self._usage(), *self._losses()]
        if self.gin:
            lines += ["## Configuration", "", "```python", self.gin.strip(), "```", ""]
        return "\n".join(lines)

    def _metadata(self) -> list[str]:
        family, given = self.record["family"], self.record["metadata"]
        found: dict[str, Any] = {
            "library_name": "transformers",
            "pipeline_tag": "text2text-generation",
            "tags": ["t5", "t5x", *([family] if family != "t5" else [])],
            "language": list(given["language"]),
            "license": given["license"],
            "datasets": list(given["datasets"]),
        }
        last = {name: points[-1] for name, points in self.curves.items() if points}
        results = [
            {
                "task": {"type": "text2text-generation"},
                "dataset": {"name": name, "type": name},
                "metrics": [
                    {"name": f"loss at step {step}", "type": "loss", "value": round(loss, 4)}
                ],
            }
            for name, (step, loss) in last.items()
            if math.isfinite(loss)
        ]
        if results:
            found["model-index"] = [{"name": self.name, "results": results}]
        known = {name: value for name, value in found.items() if value}
        text = yaml.safe_dump(known, sort_keys=False, allow_unicode=True)
        return ["---", *text.splitlines(), "---", ""]

    def _facts(self) -> dict[str, str]:
        record, sizes = self.record, self.sizes
        steps = ", ".join(f"{step:,}" for step in record["steps"])
        one = len(record["steps"]) == 1
        return {
            "Parameters": f"{record['parameters']:,}",
            "Network": f"{record['family']}, {sizes.summary()}",
            "Heads": f"{sizes.num_heads} of {sizes.head_dim}, feed-forward {sizes.mlp_dim}",
            "Vocabulary": f"{sizes.vocab_size:,}",
            "Checkpoint": f"after {steps} steps" if one else f"the mean of steps {steps}",
            "Weights": f"{record['dtype']}: {', '.join(self.files)}",
            "Tokenizer": _TOKENIZERS if record["tokenizer"] else "none was converted",
        }

    def _proof(self) -> str:
        proof = self.record["proof"]
        if proof is None:
            return (
                "**Not verified**: converted with `--no_verify`, so this model's logits were not "
                "compared with the trainer's."
            )
        text = (
            "Verified: on a fixed batch PyTorch's float32 logits differ from the trainer's by at "
            f"most {proof['largest_difference']:.1e} (largest logit {proof['largest_logit']:.1f})."
        )
        if "largest_difference_from_float32" in proof:
            text += (
                " Rounding the weights to bfloat16 changed them by at most "
                f"{proof['largest_difference_from_float32']:.1e}."
            )
        return text

    def _usage(self) -> list[str]:
        lines = [
            "## Use",
            "",
            "```python",
            "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
            "",
            f"name = {self.name!r}",
        ]
        if self.record["tokenizer"]:
            lines.append("tokenizer = AutoTokenizer.from_pretrained(name)")
        lines.append("model = AutoModelForSeq2SeqLM.from_pretrained(name)")
        if self.record["family"] == "umt5" and not self.sizes.tied:
            untie = "model.config.tie_word_embeddings = False"
            lines.append(f"{untie}  # or transformers 5 scales the logits")
        return [*lines, "```", ""]

    def _losses(self) -> list[str]:
        lines = []
        for name, points in self.curves.items():
            if points:
                lines += [f"### {name}", "", "| step | loss |", "|---:|---:|"]
                lines += [f"| {step:,} | {loss:.4f} |" for step, loss in thinned(points)]
                lines.append("")
        return ["## Loss", "", *lines] if lines else []
