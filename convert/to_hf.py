"""Convert T5X checkpoints to Hugging Face folders: write the weights, verify the result.

    convert(run, ConversionOptions(sizes=sizes, out=Path("runs/tiny_hf"), vocabulary=vocabulary))

writes `runs/tiny_hf/checkpoint_<step>/` with model.safetensors, flax_model.msgpack, config.json,
generation_config.json, the tokenizer's files, README.md and conversion.json (what was done).
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from convert import atomic_output, card, t5x_params, weight_map
from convert.encoders import to_hf as encoders
from convert.encoders.sizes import EncoderSizes
from convert.encoders.to_hf import EncoderCard
from convert.encoders.tokenizer_folder import TokenizerFolder
from convert.formats import flax_msgpack_writer, safetensors_writer
from convert.formats.safetensors_writer import DTYPES
from convert.proof.verify import verify
from convert.run import loss_curve
from convert.run.model_dir import TrainedRun
from convert.run.published import scalars_only, without_local_paths
from convert.run.vocabulary import check_size
from convert.sizes import GENERATION_CONFIG, Sizes, hugging_face_config, model_type
from convert.tokenizer import TrainedVocabulary
from t5x.checkpointing import layout
from t5x.checkpointing.lazy_array import Index, LazyArray

FORMATS = ("pytorch", "flax")
LOSS_PICTURE = "loss.png"


@dataclasses.dataclass(frozen=True)
class ConversionOptions:
    """What to make of a run's checkpoints."""

    sizes: Sizes | EncoderSizes
    out: Path  # the folder that receives `checkpoint_<step>/`
    vocabulary: TrainedVocabulary | TokenizerFolder | None = None  # None converts weights alone
    family: str | None = None  # t5, mt5 or umt5; by default the network's
    dtype: str = "float32"  # of the written weights, or "bfloat16"
    formats: tuple[str, ...] = FORMATS
    shard_bytes: int = 5 * 10**9  # of the largest safetensors file
    average: int = 1  # convert the mean of this many last checkpoints instead of each one
    verify: bool = True
    texts: tuple[str, ...] = ()  # whose generated output the card shows
    metadata: card.CardMetadata = dataclasses.field(default_factory=card.CardMetadata)


def write_weights(
    folder: Path,
    tree: t5x_params.Tree,
    wanted: list[weight_map.MappedTensor],
    options: ConversionOptions,
) -> None:
    """Write the files of `options.formats`; raise ValueError for values that no training leaves."""
    if "pytorch" in options.formats:
        torch = {t.target: _oriented(tree, t.source, t.kind.torch_transposes) for t in wanted}
        safetensors_writer.write(folder, torch, options.dtype, options.shard_bytes)
    if "flax" in options.formats:
        flax = {t.flax_path: _oriented(tree, t.source, t.kind.flax_transposes) for t in wanted}
        flax_msgpack_writer.write(folder / "flax_model.msgpack", flax, options.dtype)


def _oriented(tree: t5x_params.Tree, name: str, transpose: bool) -> LazyArray:
    """Return a tensor, optionally transposed, with its values checked when it is read."""
    array = tree[name]

    def fetch(index: Index) -> np.ndarray:
        values = array.read()
        t5x_params.check_values(name, values)
        return (values.T if transpose else values)[index]

    return LazyArray(array.shape[::-1] if transpose else array.shape, array.dtype, fetch)


def _request(run: TrainedRun, steps: list[int], options: ConversionOptions) -> dict[str, Any]:
    """Return the record that a folder must have for its conversion to be skipped."""
    vocabulary = options.vocabulary
    return {
        # The record is published, a path of this machine is not.
        "source": run.name,
        "source_sha256": hashlib.sha256(run.folder.encode()).hexdigest(),
        "steps": steps,
        # A run started again saves the same steps again.
        "saved": [layout.saved_at(run.checkpoints[step]) for step in steps],
        "dtype": options.dtype,
        "formats": list(options.formats),
        "model_type": options.family,
        "tokenizer": vocabulary is not None,
        "tokenizer_sha256": vocabulary.fingerprint() if vocabulary else None,
        "texts": list(options.texts),
        "sizes": json.loads(json.dumps(dataclasses.asdict(options.sizes))),
    }


def _is_done(folder: Path, request: dict[str, Any], verified: bool) -> bool:
    done = atomic_output.read_record(folder)
    if done is None or any(done.get(key) != value for key, value in request.items()):
        return False
    return not verified or done["proof"] is not None


def _metadata(options: ConversionOptions) -> dict[str, Any]:
    return json.loads(json.dumps(dataclasses.asdict(options.metadata)))


def _write_card(
    folder: Path, run: TrainedRun, record: dict[str, Any], sizes: Sizes | EncoderSizes
) -> None:
    """Write README.md, the loss as a picture, and the run's TensorBoard files for the hub."""
    home, up_to = epath.Path(run.folder), record["steps"][-1]
    for i, path in enumerate(loss_curve.event_files(home)):
        # A file's name has the host's name, and its texts have paths.
        name = ".".join([*path.name.split(".")[:4], str(i)])
        copy = folder / "runs" / path.parent.relative_to(home) / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(scalars_only(path.read_bytes()))
    curves = loss_curve.loss_curve(home, up_to)
    if any(curves.values()):
        loss_curve.draw(curves, run.name, folder / LOSS_PICTURE)
    weights = [p.name for p in folder.iterdir() if p.suffix in (".safetensors", ".msgpack")]
    gin = run.gin()
    kind: Any = EncoderCard if isinstance(sizes, EncoderSizes) else card.ModelCard
    page = kind(
        name=run.name,
        sizes=sizes,
        record=record,
        files=tuple(sorted(weights)),
        gin=gin and without_local_paths(gin),
        curves=curves,
        evaluations=loss_curve.evaluations(home, up_to),
        picture=LOSS_PICTURE if any(curves.values()) else None,
    )
    (folder / "README.md").write_text(page.text())


def _describe_again(folder: Path, run: TrainedRun, options: ConversionOptions) -> None:
    """Write the card of a finished conversion again, if what it says of the model has changed."""
    record = atomic_output.read_record(folder)
    if record and record["metadata"] != (metadata := _metadata(options)):
        record |= {"metadata": metadata}
        kind = type(options.sizes)
        _write_card(folder, run, record, kind(**record["sizes"]))
        atomic_output.write_record(folder, record)


def _folder(steps: list[int], options: ConversionOptions) -> Path:
    mean = f"_mean_of_{len(steps)}" if len(steps) > 1 else ""
    return options.out / f"checkpoint_{steps[-1]}{mean}"


def convert_one(run: TrainedRun, steps: list[int], options: ConversionOptions) -> Path:
    """Convert one checkpoint, or the mean of several; a ValueError leaves nothing behind."""
    folder, request = _folder(steps, options), _request(run, steps, options)
    paths = [run.checkpoints[step] for step in steps]
    if isinstance(options.sizes, EncoderSizes):
        return _convert_encoder(run, folder, request, paths, options)
    vocabulary = options.vocabulary
    assert not isinstance(vocabulary, TokenizerFolder)
    tree = t5x_params.open_tree(paths)
    sizes = t5x_params.check_network(tree, options.sizes)
    family = options.family or model_type(sizes)
    if family == "umt5":  # transformers never had umT5 in Flax
        formats = tuple(name for name in options.formats if name != "flax")
        options = dataclasses.replace(options, formats=formats)
    config = hugging_face_config(sizes, family)
    wanted = weight_map.tensors(sizes)
    if vocabulary:
        check_size(vocabulary, sizes.vocab_size)
    parameters = sum(math.prod(tensor.shape) for tensor in wanted)
    needed = parameters * DTYPES[options.dtype].itemsize * len(options.formats)
    atomic_output.check_replaceable(folder)
    atomic_output.check_disk_space(options.out, needed + 2**24)
    with atomic_output.staged(folder) as temporary:
        write_weights(temporary, tree, wanted, options)
        atomic_output.write_json(temporary / "config.json", config | {"torch_dtype": options.dtype})
        atomic_output.write_json(temporary / "generation_config.json", GENERATION_CONFIG)
        if vocabulary:
            vocabulary.write(temporary)
        facts: dict[str, Any] = {"family": family, "parameters": parameters, "proof": None}
        if options.verify:
            texts = options.texts if vocabulary else ()
            proof = verify(temporary, paths, sizes, options.dtype, vocabulary, texts)
            facts |= {"examples": proof.pop("examples", []), "proof": proof}
        record = request | facts | {"metadata": _metadata(options)}
        _write_card(temporary, run, record, sizes)
        atomic_output.write_record(temporary, record)
    return folder


def _convert_encoder(
    run: TrainedRun, folder: Path, request: dict, paths: list[str], options: ConversionOptions
) -> Path:
    """Do what `convert_one` does, for an encoder."""
    sizes, tokenizer = options.sizes, options.vocabulary
    assert isinstance(sizes, EncoderSizes)
    assert tokenizer is None or isinstance(tokenizer, TokenizerFolder)
    parameters = encoders.check_network(t5x_params.open_tree(paths), sizes)
    atomic_output.check_replaceable(folder)
    needed = parameters * DTYPES[options.dtype].itemsize
    atomic_output.check_disk_space(options.out, needed + 2**24)
    with atomic_output.staged(folder) as temporary:
        how = (options.dtype, options.shard_bytes, options.verify, options.texts)
        facts = encoders.write(temporary, paths, sizes, tokenizer, *how)
        record = request | {"family": sizes.family, "parameters": parameters} | facts
        record |= {"metadata": _metadata(options)}
        _write_card(temporary, run, record, sizes)
        atomic_output.write_record(temporary, record)
    return folder


def convert(run: TrainedRun, options: ConversionOptions) -> Iterator[Path]:
    """Convert every checkpoint of a run that is not converted yet, or the mean of the last ones.

    Yield each folder when it is complete.
    """
    steps = sorted(run.checkpoints)
    if options.average > len(steps):
        raise ValueError(
            f"--average {options.average} needs that many checkpoints; {run.folder} holds "
            f"{len(steps)}."
        )
    groups = [steps[-options.average :]] if options.average > 1 else [[step] for step in steps]
    for group in groups:
        folder = _folder(group, options)
        if _is_done(folder, _request(run, group, options), options.verify):
            print(f"{folder} is done.")
            _describe_again(folder, run, options)
        else:
            print(f"{' + '.join(f'checkpoint_{step}' for step in group)} -> {folder}")
            convert_one(run, group, options)
        yield folder
