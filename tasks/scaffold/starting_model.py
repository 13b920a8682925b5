"""A model that training starts from.

    model = open_model("google/umt5-small")     # or a folder, or runs/ro_t5x_base
    model.family, model.step                    # how it trains; the step of its newest checkpoint

It is a model of Hugging Face or a run of one's own.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from common import small_files
from common.errors import UserError, first_line, hub_errors, without_hub
from common.gin_reader import Bindings
from common.special_tokens import MOST_SENTINELS

SENTINELS = 100  # number assumed if a T5 does not name one


class Family(NamedTuple):
    """How models of one kind are trained further.

    `include` is the gin file of the loss and the optimizer, `module` and `configuration` the
    trainer's classes of the network. `tokens` of text fill a row. `vocabulary` is the file or
    folder of a run that holds it, "" for bytes.
    """

    include: str
    module: str
    configuration: str
    objective: str
    inputs: int
    targets: int
    tokens: int
    rate: float
    vocabulary: str

    @property
    def generates(self) -> bool:
        """Whether its models have a decoder."""
        return self.objective in (T5.objective, BYT5.objective)

    @property
    def package(self) -> str:
        """The package whose `network` has the configuration."""
        return ".".join(self.include.split("/")[:3])


T5 = Family(
    include="t5x/examples/t5/t5_1_1/base.gin",
    module="Transformer",
    configuration="T5Config",
    objective="span_corruption",
    inputs=512,
    targets=114,
    tokens=568,
    rate=1e-3,
    vocabulary="vocabulary.model",
)
T5GEMMA2 = T5._replace(
    include="t5x/examples/t5gemma2/base.gin",
    module="T5Gemma2",
    configuration="T5Gemma2Config",
)
BYT5 = T5._replace(
    include="t5x/examples/t5/byt5/base.gin",
    objective="byt5",
    inputs=1024,
    targets=189,
    tokens=1193,
    vocabulary="",
)
ROBERTA = Family(
    include="t5x/examples/encoder/roberta/base.gin",
    module="Bert",
    configuration="BertConfig",
    objective="masked_lm",
    inputs=512,
    targets=512,
    tokens=510,
    rate=1e-4,
    vocabulary="tokenizer",
)
MODERNBERT = ROBERTA._replace(
    include="t5x/examples/encoder/modernbert/base.gin",
    module="ModernBert",
    configuration="ModernBertConfig",
    objective="modernbert",
    inputs=1024,
    targets=1024,
    tokens=1022,
)
# By the model_type of a config.json.
FAMILIES = {
    "t5": T5,
    "mt5": T5,
    "umt5": T5,
    "t5gemma2": T5GEMMA2,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "modernbert": MODERNBERT,
}


class Model(NamedTuple):
    """A model to start from, and the step of its newest checkpoint.

    `model_type` is the one in its config.json, None for a run of the user's.
    """

    name: str
    family: Family
    model_type: str | None
    step: int

    @property
    def short(self) -> str:
        """The last part of the name, for names of files."""
        return re.sub(r"\W+", "_", self.name.rpartition("/")[2].lower()).strip("_")


def open_model(name: str) -> Model:
    """Return the model of a run's folder, a folder of transformers, or a name of the hub.

    Raises:
      UserError: there is no such model, or it is of another family.
    """
    folder = Path(name).expanduser()
    name = str(folder) if folder.is_dir() else name  # nothing expands ~ in the commands
    names = (re.fullmatch(r"checkpoint_(\d+)", path.name) for path in folder.glob("checkpoint_*"))
    steps = [int(match[1]) for match in names if match]
    if (folder / "config.gin").is_file():
        if not steps:
            why = "which is a run without a checkpoint"
            raise UserError("--from", name, why, "train it until it has saved one")
        return Model(name, _family_of_run(folder), None, max(steps))
    config = _config(name, "config.json")
    model_type = config.get("model_type")
    if model_type not in FAMILIES:
        raise UserError(
            "--from",
            name,
            f"which has model_type {model_type!r}, but must have {', '.join(FAMILIES)}",
            "name such a model, or a run of your own",
        )
    classes = {_config(name, "tokenizer_config.json").get("tokenizer_class")}
    is_bytes = "ByT5Tokenizer" in classes | {config.get("tokenizer_class")}
    return Model(name, BYT5 if is_bytes else FAMILIES[model_type], model_type, 0)


def bindings_of(folder: Path) -> Bindings:
    """Return what the `config.gin` of a run binds.

    Raises:
      UserError: it cannot be read.
    """
    with small_files.parsing(folder / "config.gin", "name another run"):
        return Bindings.read(small_files.read_text(folder / "config.gin"))


def _family_of_run(folder: Path) -> Family:
    bindings = bindings_of(folder)
    if bindings.binds_bytes():
        return BYT5
    families = (T5, T5GEMMA2, ROBERTA, MODERNBERT)
    bound = [family for family in families if bindings.of(family.configuration)]
    if not bound:
        raise UserError(
            "--from", str(folder), "a run whose config.gin binds no network", "name another"
        )
    # A recipe may replace the network of another that it includes.
    return next((family for family in bound if bindings.refers(family.module)), bound[0])


def _config(name: str, file: str) -> dict[str, Any]:
    """Return the values in a JSON file of a model, {} if it has no such file."""
    path = file_of(name, file)
    if path is None:
        return {}
    with small_files.parsing(path, "name another model"):
        return small_files.read_json(path)


def file_of(name: str, file: str) -> Path | None:
    """Return a file of a folder or of a repository of the hub, None if there is no such file.

    Raises:
      UserError: there is neither folder nor repository, or the hub cannot be read.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    path = Path(name) / file
    try:
        if not path.parent.is_dir():
            path = Path(hf_hub_download(name, file))
    except RemoteEntryNotFoundError:
        return None
    except hub_errors() as error:
        raise UserError(
            "--from",
            name,
            "neither a folder nor a model of the hub that can be read: "
            f"{first_line(error).rstrip('.')}",
            without_hub(name, error),
        ) from error
    return path if path.is_file() else None


def sentinels_of(name: str) -> int:
    """Return the number of sentinels that a T5 of Hugging Face has after its pieces."""
    declared = _config(name, "tokenizer_config.json").get("extra_ids")
    if declared is None:
        return SENTINELS
    if not isinstance(declared, int) or not 0 <= declared <= MOST_SENTINELS:
        raise UserError(
            "extra_ids",
            declared,
            f"but must be an integer from 0 to {MOST_SENTINELS:,}",
            "take another copy of the model",
        ).at(f"{name}/tokenizer_config.json")
    return declared
