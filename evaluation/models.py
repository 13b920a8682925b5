"""Finds the models to evaluate.

    for model in find("runs/ro_t5x_base", every_checkpoint=True):
        guesser = model.load(SPAN_CORRUPTION)

They are checkpoints of runs, and Hugging Face folders.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable

import numpy as np
from etils import epath

from common.errors import ROOT, UserError
from convert import from_hf, hub, t5x_params
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.generate import converted_folders
from convert.proof.t5x_logits import module_of
from convert.run import model_dir, vocabulary
from convert.sizes import EncoderSizes, Sizes
from evaluation import text_encoder
from evaluation.guesser import MASKED_LM, PREFIX_LM, SPAN_CORRUPTION, ModelGuesser
from evaluation.scorer import MaskScorer, Scorer
from evaluation.text_encoder import TextEncoder
from t5x.checkpointing import layout
from t5x.checkpointing.layer_stacking import stack_layers

OBJECTIVES = (SPAN_CORRUPTION, PREFIX_LM)  # objectives of a T5


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that is not loaded yet.

    Args:
      name: as results call it.
      path: its folder.
      run: the folder of a run of this project on this machine, else None.
      sizes: its network.
      encoder: its vocabulary.
      read: returns its parameters by path.
    """

    name: str
    path: str
    run: pathlib.Path | None
    sizes: Sizes
    encoder: TextEncoder
    read: Callable[[], t5x_params.Tree]

    @property
    def step(self) -> int | None:
        """The step of a `checkpoint_<step>`, else None."""
        return layout.step_of(self.path)

    @property
    def title(self) -> str:
        """The name, and the step if there is one."""
        return self.name if self.step is None else f"{self.name}, step {self.step:,}"

    def objective(self, of_t5: str) -> str:
        """Return the objective that the model is measured by: `of_t5`, or that of encoders.

        Raises:
          UserError: it is an encoder, which continues no text.
        """
        if not isinstance(self.sizes, EncoderSizes):
            return of_t5
        if of_t5 == PREFIX_LM:
            raise UserError(
                self.name,
                why="is an encoder, which cannot continue a text",
                to_set=f"leave --objective {PREFIX_LM} out",
            )
        return MASKED_LM

    def load(self, objective: str) -> ModelGuesser:
        """Return what guesses text by an objective, with parameters read in float32.

        Raises:
          UserError: the parameters are not exactly this network's.
        """
        arrays = self.read()
        module = module_of(t5x_params.check_network(arrays, self.sizes))
        tree = {n: np.asarray(array.read(), np.float32) for n, array in arrays.items()}
        params = stack_layers(t5x_params.nested(tree))
        is_encoder = isinstance(self.sizes, EncoderSizes)
        scorer = (MaskScorer if is_encoder else Scorer)(module, params)
        return ModelGuesser(objective, self.encoder, scorer.score)

    def count_parameters(self) -> int:
        """Return the number of parameters; only shapes are read."""
        return sum(int(np.prod(array.shape)) for array in self.read().values())


def find(path: str, every_checkpoint: bool = False) -> list[Model]:
    """Return the models of a run, a checkpoint, a Hugging Face folder or a name of the hub.

    For a run, that is the newest checkpoint, or all of them in the order of their steps.

    Raises:
      UserError: there is no model, the trainer has no such network, or the vocabulary is missing
        or has no sentinels.
    """
    folder = pathlib.Path(path)
    if (folder / "config.json").is_file() or hub.is_name(path):
        return [_folder_model(path.rstrip("/"), hub.download(path, from_hf.FILES))]
    if converted := converted_folders(folder):
        candidates = [_folder_model(folder.name, part) for part in converted]
    else:
        candidates = _run_models(model_dir.open_run(path))
    return candidates if every_checkpoint else candidates[-1:]


def _run_models(run: model_dir.TrainedRun) -> list[Model]:
    """Return the models of all checkpoints."""
    folders = [ROOT, pathlib.Path.cwd()]
    sizes, bindings = model_dir.network(run)
    if isinstance(sizes, EncoderSizes):
        places = [epath.Path(run.folder) / vocabulary.TOKENIZER]
        tokenizer = bindings and (
            bindings.of("tokenizer").get("path") or bindings.first("tokenizer_file")
        )
        if isinstance(tokenizer, str):
            named = epath.Path(tokenizer)
            places += (
                [named] if "://" in tokenizer else [f / named for f in map(epath.Path, folders)]
            )
        encoder = _tokenizer_of(places, run.folder)
    else:
        trained = vocabulary.vocabulary_of(run, bindings, folders=folders)
        encoder = text_encoder.vocabulary_encoder(trained, run.folder)
    return [
        Model(
            run.name,
            path,
            run.local,
            sizes,
            encoder,
            functools.partial(t5x_params.open_tree, [path]),
        )
        for _, path in sorted(run.checkpoints.items())
    ]


def _folder_model(name: str, folder: pathlib.Path) -> Model:
    sizes, tree = from_hf.network_of(HfCheckpoint.open(folder))
    is_encoder = isinstance(sizes, EncoderSizes)
    encoder = (
        _tokenizer_of([epath.Path(folder)], str(folder))
        if is_encoder
        else text_encoder.folder_encoder(folder)
    )
    return Model(name, str(folder), None, sizes, encoder, lambda: tree)


def _tokenizer_of(places: list[epath.Path], owner: str) -> TextEncoder:
    """Return the vocabulary of an encoder, in the first of `places` that has a tokenizer."""
    for place in places:
        if place.is_file() or (place / "tokenizer.json").is_file():
            return text_encoder.tokenizer_encoder(place, owner)
    raise UserError(
        owner,
        why=f"has no tokenizer: there is no {places[0] / 'tokenizer.json'}",
        to_set="copy the model's own there",
    )
