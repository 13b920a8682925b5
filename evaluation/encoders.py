"""Masked language models to evaluate: BERT, RoBERTa and ModernBERT, from a run or a folder.

opened = of_folder(pathlib.Path("bert-base-multilingual-cased"))
opened.guesser(params)
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from command_line.gin_reader import Bindings
from convert import t5x_params
from convert.encoders import from_hf
from convert.encoders.sizes import ARCHITECTURES
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.run.model_dir import TrainedRun
from evaluation.masks import MaskGuesser, MaskScorer
from t5x.examples.encoder import network
from tasks.tokenizer_vocabulary import TokenizerVocabulary

Module = network.Bert | network.ModernBert
_CONFIGS: tuple[tuple[type, Callable], ...] = (
    (network.ModernBertConfig, network.ModernBert),
    (network.BertConfig, network.Bert),
)


class OpenedEncoder(NamedTuple):
    """An encoder that is not loaded yet: the network, and its vocabulary; `owner` is its name."""

    module: Module
    vocabulary: TokenizerVocabulary
    owner: str

    def guesser(self, params: Any) -> MaskGuesser:
        """Return what guesses text with nested float32 parameters."""
        return MaskGuesser(MaskScorer(self.module, params), self.vocabulary, self.owner)

    def ids_of(self, text: str) -> list[int]:
        """Return the ids of a text, without those of its begin and end."""
        return self.vocabulary.encode_texts([text])[0].tolist()


def is_encoder(config: dict[str, Any]) -> bool:
    """Return whether a Hugging Face config.json is that of an encoder."""
    return config.get("model_type") in ARCHITECTURES


def of_folder(folder: pathlib.Path) -> tuple[OpenedEncoder, Callable[[], t5x_params.Tree]]:
    """Return the encoder of a Hugging Face folder, and what reads its parameters.

    Raises:
      ValueError: it has no tokenizer.json, or is not the network that its config.json names.
    """
    sizes, _ = from_hf.network_of(HfCheckpoint.open(folder))
    config, module = _CONFIGS[0 if sizes.modern else 1]
    read = lambda: from_hf.parameters(sizes, from_hf.network_of(HfCheckpoint.open(folder))[1])
    vocabulary = _vocabulary([folder], str(folder))
    return OpenedEncoder(module(config(**sizes.fields())), vocabulary, str(folder)), read


def of_run(
    run: TrainedRun, bindings: Bindings, folders: Sequence[pathlib.Path]
) -> OpenedEncoder | None:
    """Return the encoder of a run by its gin, None if the run is of another model.

    A relative path of the tokenizer is looked for in `folders`.

    Raises:
      ValueError: there is no tokenizer.
    """
    for config, module in _CONFIGS:
        known = {field.name for field in dataclasses.fields(config)} - {"dtype", "attention"}
        if fields := {k: v for k, v in bindings.of(config.__name__).items() if k in known}:
            given = bindings.literals("tokenizer").get("path") or bindings.first("tokenizer_file")
            places = [pathlib.Path(run.folder) / "tokenizer"]
            places += [folder / given for folder in folders] if isinstance(given, str) else []
            return OpenedEncoder(
                module(config(**fields)), _vocabulary(places, run.folder), run.folder
            )
    return None


def _vocabulary(places: Sequence[pathlib.Path], owner: str) -> TokenizerVocabulary:
    for place in places:
        if place.is_file() or (place / "tokenizer.json").is_file():
            return TokenizerVocabulary(os.fspath(place))
    raise ValueError(
        f"{owner} has no tokenizer: there is no {places[0] / 'tokenizer.json'}; copy the model's "
        "own there"
    )
