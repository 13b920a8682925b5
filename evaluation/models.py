"""Models to evaluate: checkpoints of runs, and Hugging Face folders.

for model in find("runs/ro_t5x_base", every_checkpoint=True):
    guesser = model.load(SPAN_CORRUPTION)
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from command_line.gin_reader import Bindings
from convert import from_hf, t5x_params
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.model_config import Sizes, sizes_of_hugging_face
from convert.proof.t5x_logits import network_config
from convert.run import model_dir, vocabulary
from evaluation import encoders, text_encoder
from evaluation.guesser import Guesser, PrefixGuesser, SpanGuesser
from evaluation.scorer import Scorer
from evaluation.text_encoder import TextEncoder
from t5x.checkpointing import layout
from t5x.checkpointing.layer_stacking import stack_layers

SPAN_CORRUPTION, PREFIX_LM = OBJECTIVES = ("span_corruption", "prefix_lm")  # of a T5
MASKED_LM = "masked_lm"
ROOT = pathlib.Path(__file__).resolve().parents[1]
Guessers = Mapping[str, Callable[[Any], Guesser]]
Ids = Callable[[str], list[int]]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that is not loaded yet.

    `step` is that of a `checkpoint_<step>`, else None; `saved` is when it was written, in seconds
    since 1970; `run` is the folder of a run of this project on this machine, else None. `guessers`
    make of its parameters what guesses text, by objective.
    """

    name: str
    path: str
    step: int | None
    saved: int
    run: pathlib.Path | None
    ids_of: Ids
    read: Callable[[], t5x_params.Tree]
    guessers: Guessers

    def objective(self, of_t5: str) -> str:
        """Return the objective that it is measured by: `of_t5`, or that of encoders.

        Raises:
          ValueError: it is an encoder, which continues no text.
        """
        if MASKED_LM in self.guessers and of_t5 == PREFIX_LM:
            raise ValueError(
                f"{self.name} is an encoder, which cannot continue a text: leave --objective "
                f"{PREFIX_LM} out"
            )
        return MASKED_LM if MASKED_LM in self.guessers else of_t5

    def load(self, objective: str) -> Guesser:
        """Return what guesses text by an objective, with parameters read in float32."""
        tree = {n: np.asarray(array.read(), np.float32) for n, array in self.read().items()}
        return self.guessers[objective](stack_layers(t5x_params.nested(tree)))

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
    if (folder / "config.json").is_file() or from_hf.is_hub_name(path):
        return [_of_folder(path.rstrip("/"), from_hf.download(path))]
    if converted := [each.parent for each in folder.glob("checkpoint_*/config.json")]:
        models = (_of_folder(folder.name, each) for each in converted)
        found = sorted(models, key=lambda model: -1 if model.step is None else model.step)
        return found if every_checkpoint else found[-1:]
    run = model_dir.open_run(path)
    about = _of_run(run)
    steps = sorted(run.checkpoints)
    return [
        _of_checkpoint(run, step, *about) for step in (steps if every_checkpoint else steps[-1:])
    ]


def _of_run(run: model_dir.TrainedRun) -> tuple[Ids, Guessers]:
    folders, gin = [ROOT, pathlib.Path.cwd()], run.gin()
    if gin and (encoder := encoders.of_run(run, Bindings.read(gin), folders)):
        return encoder.ids_of, {MASKED_LM: encoder.guesser}
    sizes, bindings = model_dir.network(run)
    found = vocabulary.vocabulary_of(run, bindings, folders=folders)
    of_text = text_encoder.of_vocabulary(found, run.folder)
    return of_text.ids_of, _of_t5(sizes, of_text)


def _of_checkpoint(run: model_dir.TrainedRun, step: int, ids_of: Ids, guessers: Guessers) -> Model:
    path = run.checkpoints[step]
    read = lambda: t5x_params.open_tree([path])
    saved = layout.saved_at(path)
    return Model(run.name, path, step, saved, run.local, ids_of, read, guessers)


def _of_t5(sizes: Sizes, encoder: TextEncoder) -> Guessers:
    config = network_config(sizes)
    return {
        SPAN_CORRUPTION: lambda params: SpanGuesser(Scorer(config, params), encoder),
        PREFIX_LM: lambda params: PrefixGuesser(Scorer(config, params), encoder),
    }


def _of_folder(name: str, folder: pathlib.Path) -> Model:
    checkpoint, step = HfCheckpoint.open(folder), layout.step_of(str(folder))
    saved = int((folder / "config.json").stat().st_mtime)
    if encoders.is_encoder(checkpoint.config):
        encoder, read = encoders.of_folder(folder)
        guessers: Guessers = {MASKED_LM: encoder.guesser}
        return Model(name, str(folder), step, saved, None, encoder.ids_of, read, guessers)
    sizes = dataclasses.replace(
        sizes_of_hugging_face(checkpoint.config), logits_via_embedding=checkpoint.tied()
    )
    of_text = text_encoder.of_folder(folder)
    read = lambda: from_hf.parameters(HfCheckpoint.open(folder), sizes)
    guessers = _of_t5(sizes, of_text)
    return Model(name, str(folder), step, saved, None, of_text.ids_of, read, guessers)
