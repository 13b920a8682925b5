"""Exports a run before it is trained, so that what cannot be published shows before it starts.

    python -m convert.publishable FOLDER     # prints a CheckResult as JSON

FOLDER is written by the trainer (`t5x.start.publishable`) and looks like a run's: `config.gin`,
`vocabulary.model` or `tokenizer/`; `shapes.json` has the shapes of all parameters in place of a
checkpoint, `texts.json` the first lines of the corpus, {"lines": [...]}. A conversion writes and
proves its folder by the same functions.
"""

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common import small_files
from common.errors import ROOT, UserError, first_line
from common.gin_reader import Bindings
from common.tables import CheckResult, NotChecked, ok, run_check
from convert import atomic_output, t5x_params
from convert.proof import same_ids, torch_logits
from convert.proof.odd_texts import odd_texts
from convert.run import model_dir
from convert.run.vocabulary import tokenizer_of, vocabulary_of
from convert.sizes import KINDS, T5_IDS, EncoderDecoderSizes, Sizes
from convert.tokenizer import TOKENIZER_CONFIG, Vocabulary
from t5x.checkpointing.lazy_array import LazyArray

SHAPES, TEXTS = "shapes.json", "texts.json"


class Described(NamedTuple):
    """A run's network, gin and vocabulary (None converts weights alone)."""

    sizes: Sizes
    bindings: Bindings | None
    vocabulary: Vocabulary | None


def describe(
    run: model_dir.TrainedRun,
    config: str | None = None,
    vocabulary: str | None = None,
    model_type: str | None = None,
) -> Described:
    """Return a run's network and vocabulary; the arguments are flags of the converter.

    Raises:
      UserError: they do not fit the run, or it lacks what they do not give.
    """
    sizes, bindings = model_dir.network(run, config)
    sizes = dataclasses.replace(sizes, model_type=model_type or sizes.model_type)
    if vocabulary == "none":
        return Described(sizes, bindings, None)
    if isinstance(sizes, EncoderDecoderSizes):
        folders = [Path.cwd(), ROOT]
        return Described(sizes, bindings, vocabulary_of(run, bindings, vocabulary, folders))
    tokenizer = tokenizer_of(run, vocabulary)
    # XLM-R's network is a RoBERTa; its tokenizer is its own.
    if sizes.family == "roberta" and tokenizer.tokenizer_class.startswith("XLMRoberta"):
        sizes = dataclasses.replace(sizes, model_type="xlm-roberta")
    return Described(sizes, bindings, tokenizer)


def export(
    folder: Path,
    run: model_dir.TrainedRun,
    sizes: Sizes,
    vocabulary: Vocabulary | None,
    dtype: str,
) -> None:
    """Write a published folder without its weights and card.

    Raises:
      UserError: Hugging Face has no such network or vocabulary.
    """
    ids = vocabulary.config_ids(sizes) if vocabulary else {}
    config = sizes.config(ids) | {"torch_dtype": dtype}
    if prefix := model_dir.prefix_of(run.inference()):
        config["prefix"] = prefix  # pipelines of transformers add it
    atomic_output.write_json(folder / "config.json", config)
    if vocabulary:
        vocabulary.publish(folder, sizes)
    if isinstance(sizes, EncoderDecoderSizes):
        fixed = {name: config[name] for name in (*T5_IDS, "use_cache")}
        atomic_output.write_json(folder / model_dir.GENERATION, run.generation() | fixed)
        if vocabulary and (lengths := run.inference().get("lengths")):
            tokenizer = folder / TOKENIZER_CONFIG
            limit = {"model_max_length": lengths["inputs"]}
            atomic_output.write_json(tokenizer, small_files.read_json(tokenizer) | limit)


def check_untrained(folder: Path) -> same_ids.Compared:
    """Export the run that a folder describes, load it with transformers, and compare the ids.

    Raises:
      UserError: the run could not be published once it is trained; one sentence.
    """
    run = model_dir.TrainedRun(str(folder), {})
    bindings = Bindings.read(run.gin() or "")
    if not any(bindings.of(kind.configuration) for kind in KINDS):
        raise NotChecked("Hugging Face has no such network as this")
    described = describe(run)
    shapes = small_files.read_json(folder / SHAPES)
    sizes = t5x_params.check_network(_untrained(shapes), described.sizes)
    lines = small_files.read_json(folder / TEXTS)["lines"]
    return check_export(run, described._replace(sizes=sizes), lines)


def check_export(
    run: model_dir.TrainedRun, described: Described, lines: Iterable[str]
) -> same_ids.Compared:
    """Export all but the weights, load it with transformers, and compare the ids of the lines.

    Raises:
      UserError: Hugging Face has no such network or vocabulary, or other ids.
    """
    sizes, _, vocabulary = described
    assert vocabulary is not None
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        export(out, run, sizes, vocabulary, "float32")
        torch_logits.check_names(out, sizes)
        return same_ids.compare(vocabulary, out, [*odd_texts(), *lines])


def _untrained(shapes: Mapping[str, Iterable[int]]) -> t5x_params.Tree:
    def fetch(index: Any) -> np.ndarray:
        raise AssertionError("the run is not trained")

    kind = np.dtype(np.float32)
    return {name: LazyArray(tuple(shape), kind, fetch) for name, shape in shapes.items()}


def main(argv: list[str]) -> int:
    """Print the result for the folder in `argv`."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # the trainer has the accelerator
    (folder,) = argv

    def check() -> CheckResult:
        try:
            return ok(str(check_untrained(Path(folder))))
        except (ValueError, NotChecked):
            raise
        except Exception as error:  # it would end the conversion, too
            what = f"{type(error).__name__}: {first_line(error)}"
            raise UserError(
                "the export of the untrained run",
                why=f"fails ({what})",
                to_set="set --allow_unpublishable to train it nevertheless",
            ) from error

    print(json.dumps(dataclasses.asdict(run_check("publishing", check))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
