"""Writes the model card of a converted folder: README.md with metadata for the hub."""

import dataclasses
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import huggingface_hub
from etils import epath

from common import markdown
from common.markdown import fenced, plain
from common.metric_names import BASELINE, CONFUSION
from common.tables import spread
from convert.proof.torch_logits import generates_by_itself, generation
from convert.run import loss_curve
from convert.run.model_dir import TrainedRun, prefix_of
from convert.run.published import scalars_only, without_local_paths
from convert.sizes import EncoderDecoderSizes, Sizes, T5Gemma2Sizes

_PICTURE, _EVENTS = "loss.png", "runs"
_MOST_ROWS = 12  # most rows of the table of losses


@dataclasses.dataclass(frozen=True)
class CardMetadata:
    """What the publisher says about a model, since no checkpoint contains it."""

    language: tuple[str, ...] = ()
    license: str | None = None
    datasets: tuple[str, ...] = ()
    repository: str | None = None  # user/name on the hub
    dataset_licenses: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the metadata as an entry for the record of a conversion."""
        return {"metadata": json.loads(json.dumps(dataclasses.asdict(self)))}

    def hint(self, language: str | None, has_examples: bool) -> str | None:
        """Return a sentence that names the flags that the card still needs, or None.

        `language` is the code of the run's language, or None if it is unknown.
        """
        fields = (
            (f"--language {language or '<code>'}", self.language),
            ("--license <id>", self.license),
            ("--examples <text>", has_examples),
        )
        flags = [flag for flag, value in fields if not value]
        if not flags:
            return None
        names = " and no ".join(flag.split()[0].removeprefix("--") for flag in flags)
        return (
            f"The model card names no {names}: the same command with {' '.join(flags)} writes it "
            "again."
        )


def write(folder: Path, run: TrainedRun, record: dict[str, Any], sizes: Sizes) -> None:
    """Write README.md, a picture of the loss, and the numbers of the run's TensorBoard files.

    `record` is the record of the conversion, with the metadata of a `CardMetadata`.
    """
    home, up_to = epath.Path(run.folder), record["steps"][-1]
    shutil.rmtree(folder / _EVENTS, ignore_errors=True)  # of an earlier card
    for i, path in enumerate(loss_curve.event_files(home)):
        # A file's name has the host's name, and its texts have paths.
        name = ".".join([*path.name.split(".")[:4], str(i)])
        copy = folder / _EVENTS / path.parent.relative_to(home) / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(scalars_only(path.read_bytes()))
    curves = loss_curve.loss_curve(home, up_to)
    if any(curves.values()):
        loss_curve.draw(curves, run.name, folder / _PICTURE)
    weights = [p.name for p in folder.iterdir() if p.suffix in (".safetensors", ".msgpack")]
    gin = without_local_paths(run.gin() or "")
    evaluations = loss_curve.evaluations(home, up_to)
    content = CardContent(run.name, sizes, record, sorted(weights), gin, curves, evaluations)
    content.card().save(folder / "README.md")


_NO_CACHE = (
    "The decoder has more layers than the encoder. transformers makes a cache of as many layers as "
    "the encoder has, so `generate` needs `use_cache=False`, as this folder sets it."
)
_SCALED = (
    "This model needs transformers 5. transformers 4 does not divide its logits by the root of the "
    "width, so that beams and samples differ there."
)
# The folder says how long inputs and outputs are, and how to search.
_GENERATE = [
    'inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True)',
    "outputs = model.generate(**inputs)",
    "for text in tokenizer.batch_decode(outputs, skip_special_tokens=True):",
    "    print(text.strip())",
]
_NO_IMAGES = (
    "This model needs transformers 5, and reads text alone. Its class wants a network of images, "
    "so the folder has a tiny one of zeros, which text never reaches."
)


@dataclasses.dataclass(frozen=True)
class CardContent:
    """What a card is made from.

    Args:
      name: the run's name.
      sizes: its network.
      record: the record of the conversion.
      files: the names of the weight files.
      gin: the run's configuration, without local paths.
      curves: (step, loss) by the folder that logged them.
      evaluations: the last step and metrics by task.
    """

    name: str
    sizes: Sizes
    record: dict[str, Any]
    files: list[str]
    gin: str = ""
    curves: dict[str, list[tuple[int, float]]] = dataclasses.field(default_factory=dict)
    evaluations: dict[str, tuple[int, dict[str, float]]] = dataclasses.field(default_factory=dict)

    def card(self) -> huggingface_hub.ModelCard:
        """Return the complete card."""
        family, metadata = self.record["family"], self.record["metadata"]
        data = huggingface_hub.ModelCardData(
            library_name="transformers",
            pipeline_tag=self._pipeline_tag,
            tags=list(dict.fromkeys(["t5", "t5x", family] if self._generates else [family, "t5x"])),
            language=list(metadata["language"]) or None,
            license=metadata["license"],
            datasets=list(metadata["datasets"]) or None,
            model_name=self.name,
            eval_results=self._results() or None,
        )
        facts = markdown.table(["", ""], self._facts().items(), left=2)
        lines = [f"# {plain(self.name)}\n", "Trained on the T5X gin interface.\n", facts]
        lines += ["", self._proof(), "", *self._corpora(), "## Use", ""]
        lines += self._generation() if self._generates else self._filling()
        if isinstance(self.sizes, T5Gemma2Sizes):
            lines += [_NO_IMAGES, ""]
        if self.sizes.config().get("use_cache") is False:
            lines += [_NO_CACHE, ""]
        if self.sizes.output_scale != 1.0:
            lines += [_SCALED, ""]
        lines += [*self._labels(), *self._evaluation(), *self._losses()]
        if self.gin:
            lines += ["## Configuration", "", *_python(self.gin.strip())]
        text = "\n".join(lines)
        return huggingface_hub.ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")

    @property
    def _generates(self) -> bool:
        return isinstance(self.sizes, EncoderDecoderSizes)

    @property
    def _pipeline_tag(self) -> str:
        # transformers 5 has no text2text-generation, and its text-generation loads a T5 as the
        # encoder and decoder that it is.
        return "text-generation" if self._generates else "fill-mask"

    def _results(self) -> list[huggingface_hub.EvalResult]:
        """Return the last losses and metrics, without baselines, deviations and confusions.

        A mean of checkpoints has none, since only single checkpoints are evaluated.
        """
        if len(self.record["steps"]) > 1:
            return []
        last = {name: points[-1] for name, points in self.curves.items() if points}
        if len(last) > 1:
            last.pop("train", None)  # a mean of the last steps
        values = [(name, step, "loss", loss) for name, (step, loss) in last.items()]
        for task, (step, metrics) in self.evaluations.items():
            no_results = {f"{metric}_deviation" for metric in metrics} | {"seeds"}
            no_results |= {m for m in metrics if m.startswith((BASELINE, CONFUSION))}
            values += [
                (task, step, *metric_value)
                for metric_value in metrics.items()
                if metric_value[0] not in no_results
            ]
        return [
            huggingface_hub.EvalResult(
                task_type=self._pipeline_tag,
                dataset_type=name,
                dataset_name=name,
                metric_type=metric,
                metric_name=f"{metric} at step {step}",
                metric_value=round(value, 4),
            )
            for name, step, metric, value in values
            if math.isfinite(value)
        ]

    def _facts(self) -> dict[str, str]:
        record, sizes = self.record, self.sizes
        heads, width = sizes.num_heads, sizes.axis("A") // sizes.num_heads
        steps = ", ".join(f"{step:,}" for step in record["steps"])
        is_single = len(record["steps"]) == 1
        mean = f"the mean of steps {steps}; losses and metrics are of single checkpoints"
        tokenizer = "AutoTokenizer" + (" (ids are the trainer's)" if record["proof"] else "")
        return {
            "Parameters": f"{record['parameters']:,}",
            "Network": f"{record['family']}, {sizes.summary()}",
            "Heads": f"{heads} of {width}, feed-forward {sizes.mlp_dim}",
            "Vocabulary": f"{sizes.vocab_size:,}",
            "Checkpoint": f"after {steps} steps" if is_single else mean,
            "Weights": f"{record['dtype']}: {', '.join(self.files)}",
            "Tokenizer": tokenizer if record["tokenizer"] else "none was converted",
            **self._texts(),
        }

    def _texts(self) -> dict[str, str]:
        """Return what the evaluation fed and decoded, if it decoded."""
        inference, generation = self.record.get("inference"), self.record.get("generation", {})
        if not inference:
            return {}
        prefixes = inference["prefixes"]
        after = "; ".join(
            f"after {plain(repr(prefix))}" + (f" for {plain(task)}" if len(prefixes) > 1 else "")
            for task, prefix in prefixes.items()
            if prefix
        )
        beams = generation.get("num_beams", 1)
        by = f"{beams} beams" if beams > 1 else "samples" if generation["do_sample"] else "greedy"
        lengths = inference["lengths"]
        return {
            "Inputs": f"at most {lengths['inputs']} tokens{after and ', '}{after}",
            "Outputs": f"at most {lengths['targets']} tokens, {by}",
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

    def _corpora(self) -> list[str]:
        licenses = self.record["metadata"].get("dataset_licenses", {})
        lines = [
            f"- [{plain(name)}](https://huggingface.co/datasets/{quote(name)}): {plain(license)}"
            for name, license in licenses.items()
        ]
        return ["Trained on:", "", *lines, ""] if lines else []

    def _generation(self) -> list[str]:
        """Return the code that loads a T5 and generates, with its outputs if there are any."""
        code = ["from transformers import AutoModelForSeq2SeqLM, AutoTokenizer", ""]
        repository = self.record["metadata"].get("repository")
        code.append(f"name = {repository!r}" if repository else "name = '.'  # this folder")
        if self.record["tokenizer"]:
            code.append("tokenizer = AutoTokenizer.from_pretrained(name)")
        code.append("model = AutoModelForSeq2SeqLM.from_pretrained(name)")
        if not self.record["tokenizer"]:
            return _python(*code)
        examples = self.record.get("examples") or []
        texts = [text for text, _ in examples]
        texts = texts or [f"{prefix_of(self.record.get('inference', {}))}…"]
        code.append(f"texts = {texts!r}")
        if generates_by_itself(self.record.get("generation", {})):
            code += _GENERATE
        else:
            options = ", ".join(f"{name}={value!r}" for name, value in generation(texts).items())
            code += [
                'inputs = tokenizer(texts, return_tensors="pt", padding=True)',
                f"outputs = model.generate(**inputs, {options})",
                "for text in tokenizer.batch_decode(outputs):",
                '    print(text.replace("<pad>", "").strip())',
            ]
        if not examples:
            return _python(*code)
        outputs = [output for _, output in examples]
        return [*_python(*code), "These weights print:", "", fenced("\n".join(outputs)), ""]

    def _filling(self) -> list[str]:
        """Return the code that fills in masks with an encoder, with its output if there is one."""
        name = self.record["metadata"].get("repository") or "."
        if not self.record["tokenizer"]:
            load = f"model = AutoModelForMaskedLM.from_pretrained({name!r})"
            return _python("from transformers import AutoModelForMaskedLM", "", load)
        examples = self.record.get("examples") or []
        code = ["from transformers import pipeline", "", f"fill = pipeline('fill-mask', {name!r})"]
        outputs = [f"- {plain(text)} → {plain(output)}" for text, output in examples]
        return [*_python(*code, *(f"fill({text!r})" for text, _ in examples)), *outputs, ""]

    def _labels(self) -> list[str]:
        """Return what a classifier writes for each label."""
        head = ["label", "the model writes"]
        labels = self.record.get("labels", {}).items()
        tables = {task: markdown.table(head, pieces.items(), left=2) for task, pieces in labels}
        return _section("Labels", tables)

    def _evaluation(self) -> list[str]:
        tables = {}
        for task, (step, metrics) in self.evaluations.items():
            figures = {name: f"{value:.4g}" for name, value in metrics.items()}
            rows = [
                (name, value, figures.get(f"{BASELINE}{name}", "–"))
                for name, value in figures.items()
                if not name.startswith((BASELINE, CONFUSION))
            ]
            columns = 3 if any(name.startswith(BASELINE) for name in figures) else 2
            head = ["metric", "value", "baseline"][:columns]
            table = markdown.table(head, [row[:columns] for row in rows])
            tables[f"{task}, step {step:,}"] = table
        return _section("Evaluation", tables)

    def _losses(self) -> list[str]:
        tables = {}
        for name, points in self.curves.items():
            if points:
                rows = [(f"{step:,}", f"{loss:.4f}") for step, loss in spread(points, _MOST_ROWS)]
                tables[name] = markdown.table(["step", "loss"], rows, left=0)
        return _section("Loss", tables, f"![Loss]({_PICTURE})", "")


def _section(title: str, tables: Mapping[str, str], *first: str) -> list[str]:
    """Return a section with a heading for each table, or nothing if there are no tables."""
    lines = [line for name in tables for line in (f"### {plain(name)}", "", tables[name], "")]
    return [f"## {title}", "", *first, *lines] if tables else []


def _python(*code: str) -> list[str]:
    return [fenced("\n".join(code), "python"), ""]
