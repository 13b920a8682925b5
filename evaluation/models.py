"""Models to evaluate: checkpoints of runs, and T5s in Hugging Face folders.

for model in find("runs/ro_t5x_base", every_checkpoint=True):
    guesser = model.load(SPAN_CORRUPTION)
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from convert import from_hf, t5x_params
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.model_config import Sizes, sizes_of_hugging_face
from convert.proof.t5x_logits import network_config
from convert.run import model_dir, vocabulary
from evaluation import text_encoder
from evaluation.guesser import Guesser, PrefixGuesser, SpanGuesser
from evaluation.scorer import Scorer
from evaluation.text_encoder import TextEncoder
from t5x.checkpointing import layout
from t5x.checkpointing.layer_stacking import stack_layers

SPAN_CORRUPTION, PREFIX_LM = OBJECTIVES = ("span_corruption", "prefix_lm")
ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that is not loaded yet.

    `step` is that of a `checkpoint_<step>`, else None; `run` is the folder of a run of this project
    on this machine, else None.
    """

    name: str
    path: str
    step: int | None
    run: pathlib.Path | None
    ids_of: Callable[[str], list[int]]
    read: Callable[[], t5x_params.Tree]
    guesser: Callable[[Any, str], Guesser]

    def load(self, objective: str) -> Guesser:
        """Return what guesses text, by an objective of `OBJECTIVES`, with float32 parameters."""
        tree = {n: np.asarray(array.read(), np.float32) for n, array in self.read().items()}
        return self.guesser(stack_layers(t5x_params.nested(tree)), objective)

    def count_parameters(self) -> int:
        """Return the number of parameters; only shapes are read."""
        return sum(int(np.prod(array.shape)) for array in self.read().values())


def find(path: str, every_checkpoint: bool = False) -> list[Model]:
    """Return the models of a run, a checkpoint, a Hugging Face folder or a name of the hub.

    Of a run it is the newest, or all in the order of their steps.

    Raises:
      ValueError: there is none, it is no T5, or it has no sentinels or no vocabulary.
    """
    folder = pathlib.Path(path)
    if (folder / "config.json").is_file() or _is_hub_name(path):
        return [_of_folder(path.rstrip("/"), from_hf.download(path))]
    if converted := [each.parent for each in folder.glob("checkpoint_*/config.json")]:
        found = sorted((_of_folder(folder.name, each) for each in converted), key=_step)
        return found if every_checkpoint else found[-1:]
    run = model_dir.open_run(path)
    sizes, bindings = model_dir.network(run)
    encoder = text_encoder.of_vocabulary(
        vocabulary.vocabulary_of(run, bindings, folders=[ROOT, pathlib.Path.cwd()]), run.folder
    )
    steps = sorted(run.checkpoints)
    return [
        _of_checkpoint(run, step, sizes, encoder)
        for step in (steps if every_checkpoint else steps[-1:])
    ]


def _of_checkpoint(
    run: model_dir.TrainedRun, step: int, sizes: Sizes, encoder: TextEncoder
) -> Model:
    path = run.checkpoints[step]
    read = lambda: t5x_params.open_tree([path])
    return Model(run.name, path, step, run.local, encoder.ids_of, read, _of_t5(sizes, encoder))


def _of_t5(sizes: Sizes, encoder: TextEncoder) -> Callable[[Any, str], Guesser]:
    ways = {SPAN_CORRUPTION: SpanGuesser, PREFIX_LM: PrefixGuesser}
    config = network_config(sizes)
    return lambda params, objective: ways[objective](Scorer(config, params), encoder)


def _is_hub_name(path: str) -> bool:
    return not pathlib.Path(path).exists() and path.count("/") == 1 and "://" not in path


def _step(model: Model) -> int:
    return -1 if model.step is None else model.step


def _of_folder(name: str, folder: pathlib.Path) -> Model:
    checkpoint = HfCheckpoint.open(folder)
    sizes = dataclasses.replace(
        sizes_of_hugging_face(checkpoint.config), logits_via_embedding=checkpoint.tied()
    )
    encoder = text_encoder.of_folder(folder)
    read = lambda: from_hf.parameters(HfCheckpoint.open(folder), sizes)
    step, guesser = layout.step_of(str(folder)), _of_t5(sizes, encoder)
    return Model(name, str(folder), step, None, encoder.ids_of, read, guesser)
