"""Models to evaluate: checkpoints of runs, and Hugging Face folders.

for model in find("runs/ro_t5x_base", every_checkpoint=True):
    guesser = model.load(SPAN_CORRUPTION)
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from common.errors import ROOT, UserError
from convert import from_hf, hub, t5x_params
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.proof.t5x_logits import module_of
from convert.run import model_dir, vocabulary
from convert.sizes import EncoderSizes, Sizes
from evaluation import text_encoder
from evaluation.guesser import Guesser, MaskGuesser, PrefixGuesser, SpanGuesser
from evaluation.scorer import MaskScorer, Scorer
from evaluation.text_encoder import TextEncoder
from t5x.checkpointing import layout
from t5x.checkpointing.layer_stacking import stack_layers
from tasks.tokenizer_vocabulary import TokenizerVocabulary

SPAN_CORRUPTION, PREFIX_LM = OBJECTIVES = ("span_corruption", "prefix_lm")  # of a T5
MASKED_LM = "masked_lm"
Ids = Callable[[str], list[int]]
Guessers = Mapping[str, Callable[[Any], Guesser]]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that is not loaded yet.

    `run` is the folder of a run of this project on this machine, else None. `guessers` make of its
    parameters what guesses text, by objective.
    """

    name: str
    path: str
    run: pathlib.Path | None
    ids_of: Ids
    read: Callable[[], t5x_params.Tree]
    guessers: Guessers

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
        if MASKED_LM in self.guessers and of_t5 == PREFIX_LM:
            raise UserError(
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
        places = [pathlib.Path(run.folder) / "tokenizer"]
        found = bindings and (
            bindings.of("tokenizer").get("path") or bindings.first("tokenizer_file")
        )
        places += [folder / found for folder in folders] if isinstance(found, str) else []
        ids_of, guessers = _of_encoder(sizes, places, run.folder)
    else:
        own = vocabulary.vocabulary_of(run, bindings, folders=folders)
        ids_of, guessers = _of_t5(sizes, text_encoder.of_vocabulary(own, run.folder))
    of_path = lambda path: Model(
        run.name, path, run.local, ids_of, lambda: t5x_params.open_tree([path]), guessers
    )
    return [of_path(path) for _, path in sorted(run.checkpoints.items())]


def _of_folder(name: str, folder: pathlib.Path) -> Model:
    sizes, tree = from_hf.network_of(HfCheckpoint.open(folder))
    if isinstance(sizes, EncoderSizes):
        ids_of, guessers = _of_encoder(sizes, [folder], str(folder))
    else:
        ids_of, guessers = _of_t5(sizes, text_encoder.of_folder(folder))
    return Model(name, str(folder), None, ids_of, lambda: tree, guessers)


def _of_t5(sizes: Sizes, encoder: TextEncoder) -> tuple[Ids, Guessers]:
    config = module_of(sizes).config
    return encoder.ids_of, {
        SPAN_CORRUPTION: lambda params: SpanGuesser(Scorer(config, params), encoder),
        PREFIX_LM: lambda params: PrefixGuesser(Scorer(config, params), encoder),
    }


def _of_encoder(
    sizes: EncoderSizes, places: Sequence[pathlib.Path], owner: str
) -> tuple[Ids, Guessers]:
    """Return what `_of_t5` does, with the tokenizer in the first of `places` that has one."""
    has_one = lambda place: place.is_file() or (place / "tokenizer.json").is_file()
    if not (found := next(filter(has_one, places), None)):
        raise UserError(
            f"{owner} has no tokenizer: there is no {places[0] / 'tokenizer.json'}; copy the "
            "model's own there"
        )
    own, module = TokenizerVocabulary(str(found)), module_of(sizes)
    guesser = lambda params: MaskGuesser(MaskScorer(module, params), own, owner)
    return lambda text: own.encode_texts([text])[0].tolist(), {MASKED_LM: guesser}
