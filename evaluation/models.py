"""Models to evaluate: checkpoints of runs, and Hugging Face folders.

for model in find("runs/ro_t5x_base", every_checkpoint=True):
    guesser = model.load(SPAN_CORRUPTION)
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable

import numpy as np

from common.errors import ROOT, UserError
from convert import from_hf, hub, t5x_params
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.proof.t5x_logits import module_of
from convert.run import model_dir, vocabulary
from convert.sizes import EncoderSizes, Sizes
from evaluation import text_encoder
from evaluation.guesser import MASKED_LM, PREFIX_LM, SPAN_CORRUPTION, ModelGuesser
from evaluation.scorer import MaskScorer, Scorer
from evaluation.text_encoder import TextEncoder
from t5x.checkpointing import layout
from t5x.checkpointing.layer_stacking import stack_layers

OBJECTIVES = (SPAN_CORRUPTION, PREFIX_LM)  # of a T5


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
        """Return the objective that it is measured by: `of_t5`, or the encoders'.

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
        """Return what guesses text by an objective, with parameters read in float32."""
        tree = {n: np.asarray(array.read(), np.float32) for n, array in self.read().items()}
        params, module = stack_layers(t5x_params.nested(tree)), module_of(self.sizes)
        is_encoder = isinstance(self.sizes, EncoderSizes)
        scorer = MaskScorer(module, params) if is_encoder else Scorer(module.config, params)
        return ModelGuesser(objective, self.encoder, scorer.score)

    def count_parameters(self) -> int:
        """Return the number of parameters; only shapes are read."""
        return sum(int(np.prod(array.shape)) for array in self.read().values())


def find(path: str, every_checkpoint: bool = False) -> list[Model]:
    """Return the models of a run, a checkpoint, a Hugging Face folder or a name of the hub.

    Of a run it is the newest, or all in the order of their steps.

    Raises:
      UserError: there is none, its network is none of ours, or its vocabulary is missing or has no
        sentinels.
    """
    folder = pathlib.Path(path)
    if (folder / "config.json").is_file() or hub.is_name(path):
        return [_of_folder(path.rstrip("/"), hub.download(path, from_hf.FILES))]
    if converted := [each.parent for each in folder.glob("checkpoint_*/config.json")]:
        steps = {layout.step_of(str(each)) or -1: each for each in converted}
        found = [_of_folder(folder.name, each) for _, each in sorted(steps.items())]
    else:
        found = _of_run(model_dir.open_run(path))
    return found if every_checkpoint else found[-1:]


def _of_run(run: model_dir.TrainedRun) -> list[Model]:
    """Return the models of all checkpoints."""
    folders = [ROOT, pathlib.Path.cwd()]
    sizes, bindings = model_dir.network(run)
    if isinstance(sizes, EncoderSizes):
        places = [pathlib.Path(run.folder) / vocabulary.TOKENIZER]
        bound = bindings and (
            bindings.of("tokenizer").get("path") or bindings.first("tokenizer_file")
        )
        places += [folder / bound for folder in folders] if isinstance(bound, str) else []
        encoder = _tokenizer_of(places, run.folder)
    else:
        trained = vocabulary.vocabulary_of(run, bindings, folders=folders)
        encoder = text_encoder.of_vocabulary(trained, run.folder)
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


def _of_folder(name: str, folder: pathlib.Path) -> Model:
    sizes, tree = from_hf.network_of(HfCheckpoint.open(folder))
    is_encoder = isinstance(sizes, EncoderSizes)
    encoder = _tokenizer_of([folder], str(folder)) if is_encoder else text_encoder.of_folder(folder)
    return Model(name, str(folder), None, sizes, encoder, lambda: tree)


def _tokenizer_of(places: list[pathlib.Path], owner: str) -> TextEncoder:
    """Return the vocabulary of an encoder, in the first of `places` that has a tokenizer."""
    for place in places:
        if place.is_file() or (place / "tokenizer.json").is_file():
            return text_encoder.of_tokenizer(place, owner)
    raise UserError(
        owner,
        why=f"has no tokenizer: there is no {places[0] / 'tokenizer.json'}",
        to_set="copy the model's own there",
    )
