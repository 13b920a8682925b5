"""A run's folder: its checkpoints, its saved gin, its vocabulary.

    run = open_run("runs/ro_t5x_tiny")    # or one checkpoint of it
    run.checkpoints                       # {1000: "/…/runs/ro_t5x_tiny/checkpoint_1000", …}
    run.gin()                             # the text of its config.gin, or None
    sizes, bindings = network(run)        # as its gin binds them, or as --config names them

The folder is on this disk or in a bucket.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from etils import epath

from common import arguments, small_files
from common.errors import ROOT, UserError
from common.gin_reader import Bindings
from convert import sizes
from convert.sizes import Sizes, T5Sizes
from t5x.checkpointing import layout

_SIZES = ROOT / "t5x" / "examples"
GIN_FILES = ("config.gin", "operative_config.gin")
VOCABULARY = "vocabulary.model"
_GIVE_RUN = "give a run's MODEL_DIR or a checkpoint"
LABELS = "labels.json"
INFERENCE = "inference.json"  # what an evaluation feeds and decodes
_GREEDY = {"do_sample": False, "num_beams": 1}
GENERATION = "generation_config.json"  # how a T5 that was read from Hugging Face generates


class TrainedRun(NamedTuple):
    """A run's folder, and its checkpoints to convert, by step."""

    folder: str
    checkpoints: dict[int, str]

    @property
    def name(self) -> str:
        """The last part of the folder's path."""
        return self.folder.rsplit("/", 1)[-1]

    @property
    def local(self) -> Path | None:
        """The folder, if it is on this disk."""
        return None if "://" in self.folder else Path(self.folder)

    def gin(self) -> str | None:
        """Return the configuration that the run saved, or None."""
        for name in GIN_FILES:
            path = epath.Path(self.folder) / name
            if path.exists():
                with small_files.parsing(path, "name the network with --config"):
                    return small_files.read_text(path)
        return None

    def vocabulary(self) -> str | None:
        """Return the path of the vocabulary that the trainer copied into the folder, or None."""
        path = epath.Path(self.folder) / VOCABULARY
        return os.fspath(path) if path.exists() else None

    def generation(self) -> dict[str, Any]:
        """Return how a T5 generates, by Hugging Face's names, without special ids.

        It generates as the run's evaluation decodes, apart from what `GENERATION` says.
        """
        settings: dict[str, Any] = {}
        if lengths := self.inference().get("lengths"):
            settings = {"max_new_tokens": lengths["targets"]}
            settings |= _decoding(Bindings.read(self.gin() or ""))
        return settings | self._json(GENERATION)

    def inference(self) -> dict[str, Any]:
        """Return the `lengths` and, by task, the `prefixes` of an evaluation that decodes."""
        return self._json(INFERENCE)

    def labels(self) -> dict[str, dict[str, str]]:
        """Return what the model writes for each label, by task of classification."""
        return self._json(LABELS)

    def _json(self, name: str) -> dict[str, Any]:
        path = epath.Path(self.folder) / name
        if not path.exists():
            return {}
        with small_files.parsing(path, "remove it"):
            return small_files.read_json(path)


def prefix_of(inference: Mapping[str, Any]) -> str:
    """Return what precedes the inputs of all tasks that were decoded, "" if they differ."""
    prefixes = {*inference.get("prefixes", {}).values()}
    return prefixes.pop() if len(prefixes) == 1 else ""


def _decoding(bindings: Bindings) -> dict[str, Any]:
    """Return how a run's gin decodes, by Hugging Face's names.

    A beam of one becomes greedy decoding. The scores of several beams are divided by length **
    length_penalty there, here by ((5 + length) / 6) ** alpha.
    """
    functions = [binding.value for binding in bindings if binding.parameter == "decode_fn"]
    sampling = {"topk": 1, "topp": 0.0, "temperature": 1.0} | bindings.of("temperature_sample")
    beams = bindings.of("DecoderParams") | bindings.of("predict_batch_with_aux")
    if any(str(function).endswith("temperature_sample") for function in functions):
        topk, topp, temperature = (sampling[name] for name in ("topk", "topp", "temperature"))
        if topk == 1 or not temperature:
            return _GREEDY
        drawn = {"top_k": topk, "top_p": topp or 1.0, "temperature": temperature}
        return {"do_sample": True, **drawn}
    if (num_beams := beams.get("num_decodes", 1)) == 1:
        return _GREEDY
    penalty = bindings.of("beam_search").get("alpha", 0.6)
    searched = {"num_beams": num_beams, "length_penalty": penalty, "early_stopping": "never"}
    return {"do_sample": False, **searched}


def open_run(folder: str) -> TrainedRun:
    """Open a run's folder or a `checkpoint_<step>`; raise UserError for any other folder."""
    arguments.check_address("The run", folder)
    path = epath.Path(folder.rstrip("/"))
    if not path.is_dir():
        raise UserError(folder, why="is not a folder", to_set=_GIVE_RUN)
    path = path if "://" in folder else path.resolve()
    step = layout.step_of(os.fspath(path))
    if step is not None:
        return TrainedRun(os.fspath(path.parent), {step: os.fspath(path)})
    steps = layout.all_steps(os.fspath(path))
    if not steps:
        raise UserError(folder, why="holds no complete checkpoint_<step>", to_set=_GIVE_RUN)
    checkpoints = {step: layout.step_folder(os.fspath(path), step) for step in steps}
    return TrainedRun(os.fspath(path), checkpoints)


def network(run: TrainedRun, config: str | None = None) -> tuple[Sizes, Bindings | None]:
    """Return the network's sizes, from --config or else from the run's gin, and that gin.

    Args:
      run: whose gin is read.
      config: a size such as "t5_1_1/base", a .gin file, or a .json (T5Config's fields, or a Hugging
        Face configuration).

    Raises:
      UserError: `config` is anything else, or neither it nor the run's gin names a network.
    """
    gin = run.gin()
    bindings = None if gin is None else Bindings.read(gin)
    if config is None:
        if bindings is None:
            raise UserError(
                run.folder,
                why=f"has no {' and no '.join(GIN_FILES)}",
                to_set="name the network with --config (a size such as t5_1_1/base, a .gin file, "
                "or a .json)",
            )
        return sizes.read_gin(bindings), bindings
    path = Path(config)
    if path.suffix == ".json" and path.is_file():
        return _sizes_of_json(path), bindings
    if path.suffix != ".gin":
        path = next(_SIZES.glob(f"**/{config}.gin"), path)
    if not path.is_file():
        sizes_of = sorted(
            f"{p.parent.name}/{p.stem}"
            for base in _SIZES.glob("**/base.gin")
            for p in base.parent.glob("*.gin")
        )
        raise UserError(
            "--config", config, "but must be a file or a size", f"name one of {', '.join(sizes_of)}"
        )
    bound = Bindings.follow(path, [path.parent, Path.cwd(), ROOT])
    return sizes.read_gin(bound), bindings or bound


def _sizes_of_json(path: Path) -> Sizes:
    with small_files.parsing(path, "name another --config"):
        fields = small_files.read_json(path)
        fields = fields.get("config", fields)
        of_hugging_face = fields.keys() & {"model_type", "d_model"}
        return sizes.read_config(fields) if of_hugging_face else T5Sizes.from_fields(fields)


def holds_run(folder: Path) -> bool:
    """Return whether a folder on this disk holds a run already."""
    return any((folder / name).exists() for name in GIN_FILES) or bool(
        layout.all_steps(os.fspath(folder))
    )


def newest_run(runs: Path) -> str:
    """Return the run under `runs` with the newest checkpoint; raise UserError if there is none."""
    checkpoints = [
        path
        for path in runs.glob("*/checkpoint_*")
        if not path.parent.name.endswith("_hf") and layout.kind(os.fspath(path))
    ]
    if not checkpoints:
        raise UserError(
            str(runs), why="holds no run with a checkpoint", to_set="give a run's folder"
        )
    return str(max(checkpoints, key=lambda path: path.stat().st_mtime).parent)
