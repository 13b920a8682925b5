"""README.md of a converted folder: the model card, with the hub's metadata."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from huggingface_hub import EvalResult, ModelCardData

from convert.run.loss_curve import thinned
from convert.sizes import EXAMPLE_GENERATION, Sizes

# The only tag of models that generate: transformers 5 has no text2text-generation, and its
# text-generation loads a T5 as the encoder and decoder that it is.
PIPELINE_TAG = "text-generation"


@dataclasses.dataclass(frozen=True)
class CardMetadata:
    """What no checkpoint knows: given by the person who publishes it."""

    language: tuple[str, ...] = ()
    license: str | None = None
    datasets: tuple[str, ...] = ()
    repository: str | None = None  # user/name on the hub
    dataset_licenses: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def hint(self) -> str | None:
        """Return a sentence on what the card should say and does not, or None."""
        wanted = {"--language ro": self.language, "--license apache-2.0": self.license}
        flags = [flag for flag, given in wanted.items() if not given]
        if not flags:
            return None
        names = " and no ".join(flag.split()[0].removeprefix("--") for flag in flags)
        return (
            f"The model card names no {names}: the same command with {' '.join(flags)} (yours) "
            "writes it again."
        )


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """A run's name and network, the record of its conversion, its weight files, gin and losses.

    `evaluations` are the last metrics and their step by task; `picture` is the file of the losses.
    """

    name: str
    sizes: Sizes
    record: dict[str, Any]
    files: tuple[str, ...]
    gin: str | None = None
    curves: dict[str, list[tuple[int, float]]] = dataclasses.field(default_factory=dict)
    evaluations: dict[str, tuple[int, dict[str, float]]] = dataclasses.field(default_factory=dict)
    picture: str | None = None

    pipeline_tag: ClassVar[str] = PIPELINE_TAG
    tokenizers: ClassVar[str] = "`AutoTokenizer` (ids are the trainer's, sentinels included)"

    def text(self) -> str:
        """Return the card in Markdown, metadata first."""
        lines = [*self._metadata(), f"# {self.name}", "", "Trained on the T5X gin interface.", ""]
        lines += ["| | |", "|---|---|"]
        lines += [f"| {key} | {value} |" for key, value in self._facts().items()]
        lines += [
            "",
            self._proof(),
            "",
            *self._corpora(),
            *self._usage(),
            *self._evaluation(),
            *self._losses(),
        ]
        if self.gin:
            lines += ["## Configuration", "", "```python", self.gin.strip(), "```", ""]
        return "\n".join(lines)

    def _metadata(self) -> list[str]:
        given = self.record["metadata"]
        data = ModelCardData(
            library_name="transformers",
            pipeline_tag=self.pipeline_tag,
            tags=self._tags(),
            language=list(given["language"]) or None,
            license=given["license"],
            datasets=list(given["datasets"]) or None,
            model_name=self.name,
            eval_results=self._results() or None,
        )
        return ["---", *data.to_yaml().splitlines(), "---", ""]

    def _tags(self) -> list[str]:
        family = self.record["family"]
        return ["t5", "t5x", *([family] if family != "t5" else [])]

    def _results(self) -> list[EvalResult]:
        """Return the last losses and metrics, without deviations and the number of seeds."""
        last = {name: points[-1] for name, points in self.curves.items() if points}
        found = [(name, step, "loss", loss) for name, (step, loss) in last.items()]
        for task, (step, metrics) in self.evaluations.items():
            no_results = {f"{metric}_deviation" for metric in metrics} | {"seeds"}
            found += [(task, step, *each) for each in metrics.items() if each[0] not in no_results]
        return [
            EvalResult(
                task_type=self.pipeline_tag,
                dataset_type=name,
                dataset_name=name,
                metric_type=metric,
                metric_name=f"{metric} at step {step}",
                metric_value=round(value, 4),
            )
            for name, step, metric, value in found
            if math.isfinite(value)
        ]

    def _facts(self) -> dict[str, str]:
        record, sizes = self.record, self.sizes
        steps = ", ".join(f"{step:,}" for step in record["steps"])
        one = len(record["steps"]) == 1
        return {
            "Parameters": f"{record['parameters']:,}",
            "Network": self._network(),
            "Heads": f"{sizes.num_heads} of {sizes.head_dim}, feed-forward {sizes.mlp_dim}",
            "Vocabulary": f"{sizes.vocab_size:,}",
            "Checkpoint": f"after {steps} steps" if one else f"the mean of steps {steps}",
            "Weights": f"{record['dtype']}: {', '.join(self.files)}",
            "Tokenizer": self.tokenizers if record["tokenizer"] else "none was converted",
        }

    def _network(self) -> str:
        return f"{self.record['family']}, {self.sizes.summary()}"

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

    def _corpora(self) -> list[str]:
        """Return the corpora with their licences, or that none is named."""
        found = self.record["metadata"].get("dataset_licenses", {})
        address = "https://huggingface.co/datasets/"
        lines = [f"- [{name}]({address}{name}): {license}" for name, license in found.items()]
        return ["Trained on:", "", *lines, ""] if lines else []

    def _usage(self) -> list[str]:
        """Return how the model is loaded and, if it was tried, code and output of `generate`."""
        lines = ["## Use", "", "```python"]
        lines += ["from transformers import AutoModelForSeq2SeqLM, AutoTokenizer", ""]
        repository = self.record["metadata"].get("repository")
        lines.append(f"name = {repository!r}" if repository else 'name = "."  # this folder')
        if self.record["tokenizer"]:
            lines.append("tokenizer = AutoTokenizer.from_pretrained(name)")
        lines.append("model = AutoModelForSeq2SeqLM.from_pretrained(name)")
        if self.record["family"] == "umt5" and not self.sizes.tied:
            untie = "model.config.tie_word_embeddings = False"
            lines.append(f"{untie}  # or transformers 5 scales the logits")
        if not (examples := self.record.get("examples")):
            return [*lines, "```", ""]
        texts = [text for text, _ in examples]
        options = ", ".join(f"{name}={value!r}" for name, value in EXAMPLE_GENERATION.items())
        lines += [
            f"texts = {texts!r}",
            'inputs = tokenizer(texts, return_tensors="pt", padding=True)',
            f"outputs = model.generate(**inputs, {options})",
            "for text in tokenizer.batch_decode(outputs):",
            '    print(text.replace("<pad>", "").strip())',
            "```",
            "",
            "These weights print:",
            "",
            "```",
        ]
        return [*lines, *(output for _, output in examples), "```", ""]

    def _evaluation(self) -> list[str]:
        lines = []
        for task, (step, metrics) in self.evaluations.items():
            lines += [f"### {task}, step {step:,}", "", "| metric | value |", "|---|---:|"]
            lines += [f"| {name} | {value:.4g} |" for name, value in metrics.items()]
            lines.append("")
        return ["## Evaluation", "", *lines] if lines else []

    def _losses(self) -> list[str]:
        lines = []
        for name, points in self.curves.items():
            if points:
                lines += [f"### {name}", "", "| step | loss |", "|---:|---:|"]
                lines += [f"| {step:,} | {loss:.4f} |" for step, loss in thinned(points)]
                lines.append("")
        shown = [f"![Loss]({self.picture})", ""] if self.picture else []
        return ["## Loss", "", *shown, *lines] if lines else []
