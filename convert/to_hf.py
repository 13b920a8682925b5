"""Convert T5X checkpoints to Hugging Face folders: write the weights, verify the result.

    convert(run, ConversionOptions(sizes=sizes, out=Path("runs/tiny_hf"), vocabulary=vocabulary))

writes `runs/tiny_hf/checkpoint_<step>/` with model.safetensors, flax_model.msgpack (T5 and mT5),
config.json, generation_config.json (T5s), the tokenizer's files, README.md and conversion.json
(what was done).
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from convert import atomic_output, card, publishable, t5x_params, weight_map
from convert.formats import flax_msgpack_writer, safetensors_writer
from convert.formats.safetensors_writer import DTYPES
from convert.proof import torch_logits
from convert.proof.verify import verify
from convert.run.model_dir import TrainedRun
from convert.sizes import Sizes, T5Gemma2Sizes
from convert.tokenizer import Vocabulary
from t5x.checkpointing import layout
from t5x.checkpointing.lazy_array import Index, LazyArray, from_numpy

FORMATS = ("pytorch", "flax")
# Transformers 4 has a umT5 for PyTorch alone, and its encoders are not written for Flax.
_FLAX_FAMILIES = ("t5", "mt5")


@dataclasses.dataclass(frozen=True)
class ConversionOptions:
    """How a run's checkpoints are converted."""

    sizes: Sizes
    out: Path  # the folder that receives `checkpoint_<step>/`
    vocabulary: Vocabulary | None = None  # None converts weights alone
    dtype: str = "float32"  # dtype of the written weights, or "bfloat16"
    formats: tuple[str, ...] = FORMATS
    shard_bytes: int = 5 * 10**9  # most bytes of a safetensors file
    average: int = 1  # convert the mean of this many last checkpoints instead of each one
    verify: bool = True
    texts: tuple[str, ...] = ()  # texts to complete for the model card
    metadata: card.CardMetadata = dataclasses.field(default_factory=card.CardMetadata)


def write_weights(
    folder: Path, tree: t5x_params.Tree, sizes: Sizes, options: ConversionOptions
) -> None:
    """Write the weights in `options.formats`; raise UserError for NaN or lost values."""
    tree, tensors = t5x_params.checked(tree), weight_map.tensors(sizes)
    tree = weight_map.scale_output(tree, 1 / sizes.output_scale)
    if "pytorch" in options.formats:
        torch = {t.target: _joined(tree, t, t.torch_shape, t.to_torch) for t in tensors}
        if isinstance(sizes, T5Gemma2Sizes):
            for name, shape in torch_logits.check_names(folder, sizes).items():
                torch[name] = from_numpy(np.zeros(shape, np.float32))
        safetensors_writer.write(folder, torch, options.dtype, options.shard_bytes)
    if "flax" in options.formats:
        flax = {t.flax_path: _joined(tree, t, t.flax_shape, t.to_flax) for t in tensors}
        flax_msgpack_writer.write(folder / "flax_model.msgpack", flax, options.dtype)


def _joined(
    tree: t5x_params.Tree,
    tensor: weight_map.MappedTensor,
    shape: tuple[int, ...],
    join: Callable[[list[np.ndarray]], np.ndarray],
) -> LazyArray:
    sources = [tree[source] for source in tensor.sources]

    def fetch(index: Index) -> np.ndarray:
        return join([source.read() for source in sources])[index]

    return LazyArray(shape, sources[0].dtype, fetch)


def _request(run: TrainedRun, steps: list[int], options: ConversionOptions) -> dict[str, Any]:
    """Return what a finished folder's record must hold, so that its conversion is skipped."""
    vocabulary = options.vocabulary
    request = {
        # The record is published, a path of this machine is not.
        "source": run.name,
        "source_sha256": hashlib.sha256(run.folder.encode()).hexdigest(),
        "steps": steps,
        # A run started again saves the same steps again.
        "saved": [layout.saved_at(run.checkpoints[step]) for step in steps],
        "dtype": options.dtype,
        "formats": options.formats,
        "tokenizer": vocabulary is not None,
        "tokenizer_sha256": vocabulary.fingerprint() if vocabulary else None,
        "texts": options.texts,
        "sizes": dataclasses.asdict(options.sizes),
        "generation": run.generation(),
    }
    request |= {"labels": labels} if (labels := run.labels()) else {}
    request |= {"inference": inference} if (inference := run.inference()) else {}
    return json.loads(json.dumps(request))


def _formats(sizes: Sizes, options: ConversionOptions) -> tuple[str, ...]:
    """Return the requested formats that the network has.

    Raises:
      UserError: there are none, or the verification has no weights to load.
    """
    has_flax = sizes.family in _FLAX_FAMILIES
    if not (formats := tuple(name for name in options.formats if has_flax or name != "flax")):
        raise UserError(
            "--formats", "flax", f"but this is {sizes.family}, not T5 or mT5", "leave it out"
        )
    if options.verify and "pytorch" not in formats:
        raise UserError(
            "--formats",
            "flax",
            "but the logits are compared with those of PyTorch's weights",
            "set it to pytorch flax, or give --no_verify",
        )
    return formats


def _folder(steps: list[int], options: ConversionOptions) -> Path:
    mean = f"_mean_of_{len(steps)}" if len(steps) > 1 else ""
    return options.out / f"checkpoint_{steps[-1]}{mean}"


def convert_one(run: TrainedRun, steps: list[int], options: ConversionOptions) -> Path:
    """Convert one checkpoint, or the mean of several; after an error nothing is left."""
    folder, request = _folder(steps, options), _request(run, steps, options)
    vocabulary = options.vocabulary
    paths = [run.checkpoints[step] for step in steps]
    tree = t5x_params.open_tree(paths)
    sizes = t5x_params.check_network(tree, options.sizes)
    options = dataclasses.replace(options, formats=_formats(sizes, options))
    parameters = sum(math.prod(array.shape) for array in tree.values())
    needed = parameters * DTYPES[options.dtype].itemsize * len(options.formats)
    atomic_output.check_replaceable(folder)
    atomic_output.check_disk_space(options.out, needed + 2**24)
    with atomic_output.staged(folder) as temporary:
        publishable.export(temporary, run, sizes, vocabulary, options.dtype)
        write_weights(temporary, tree, sizes, options)
        proof, examples = None, []
        if options.verify:
            proof = verify(temporary, paths, sizes, options.dtype, vocabulary, options.texts)
            examples = proof.pop("examples", [])
        record = request | options.metadata.record()
        record |= {"family": sizes.family, "parameters": parameters}
        record |= {"proof": proof, "examples": examples}
        card.write(temporary, run, record, sizes)
        atomic_output.write_record(temporary, record)
    return folder


def _is_done(run: TrainedRun, steps: list[int], options: ConversionOptions) -> bool:
    """Return whether the conversion exists; if it does, write its card again.

    The card has metadata and figures of evaluations, which may be newer than the conversion.
    """
    folder, request = _folder(steps, options), _request(run, steps, options)
    record = atomic_output.read_record(folder)
    if record is None or any(record.get(key) != value for key, value in request.items()):
        return False
    if options.verify and record["proof"] is None:
        return False
    print(f"{folder} is done.")
    record |= options.metadata.record()
    tree = t5x_params.open_tree([run.checkpoints[step] for step in steps])
    card.write(folder, run, record, t5x_params.check_network(tree, options.sizes))
    atomic_output.write_record(folder, record)
    return True


def convert(run: TrainedRun, options: ConversionOptions) -> Iterator[Path]:
    """Convert every checkpoint of a run that is not converted yet, or the mean of the last ones.

    Yield each folder when it is complete.
    """
    steps = sorted(run.checkpoints)
    if options.average > len(steps):
        raise UserError(
            "--average", options.average, f"but {run.folder} holds {len(steps)} checkpoints"
        )
    groups = [steps[-options.average :]] if options.average > 1 else [[step] for step in steps]
    for group in groups:
        if not _is_done(run, group, options):
            folder = _folder(group, options)
            print(f"{' + '.join(f'checkpoint_{step}' for step in group)} -> {folder}")
            convert_one(run, group, options)
        yield _folder(group, options)
