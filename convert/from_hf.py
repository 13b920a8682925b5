"""A published T5 as a T5X checkpoint, to be continued or fine-tuned here or in T5X.

  write_checkpoint(Path("mt5-small"), Path("start"), step=0)

writes `start/checkpoint_0` with `target` and `state/step` (an optimizer starts afresh),
`start/config.gin` with the network's sizes and, where the folder has one,
`start/vocabulary.model`; a ByT5's gin names its bytes. No more than one tensor is in memory at a
time. The way back gives the same bits.
"""

import argparse
import dataclasses
import math
import shutil
from pathlib import Path

import numpy as np

from convert import atomic_output, to_hf, weight_map
from convert.formats import t5x_checkpoint_writer
from convert.formats.hf_checkpoint_reader import Published, Stored
from convert.formats.t5x_checkpoint_writer import blocks
from convert.model_config import Sizes, sizes_of_hugging_face
from convert.proof import verify
from convert.run import model_dir
from convert.subprocesses import give_back_freed_memory, run_apart
from t5x.checkpointing.lazy_array import LazyArray, from_numpy
from t5x.checkpointing.reader import open_checkpoint

_FILES = (
    *("config.json", "*.safetensors", "*.index.json", "pytorch_model*.bin"),
    *("spiece.model", "tokenizer_config.json"),
)


def _turned(array: Stored, turn: bool) -> np.ndarray:
    values = array.read()
    return np.asarray(values.T if turn else values, np.float32)


def parameters(model: Published, sizes: Sizes) -> dict[str, LazyArray]:
    """A model's tensors under T5X's paths, float32 in T5X's order, each read when asked for.

    Raises:
      ValueError: where tensors are missing, superfluous or of another shape.
    """
    arrays = dict(model.arrays)
    if sizes.tied:
        arrays.pop("lm_head.weight", None)
    else:  # a head that is neither scaled nor its own is the embedding once more
        arrays.setdefault("lm_head.weight", arrays["shared.weight"])
    wanted = weight_map.tensors(sizes)
    weight_map.guard_targets(wanted, {name: array.shape for name, array in arrays.items()})

    def lazy(tensor: weight_map.Tensor) -> LazyArray:
        array, turn = arrays[tensor.target], tensor.kind.torch_turns
        whole = lambda index: _turned(array, turn)[index]
        return LazyArray(tensor.shape, np.dtype(np.float32), whole)

    return {tensor.source: lazy(tensor) for tensor in wanted}


def gin_of(sizes: Sizes, byte_sentinels: int | None = None) -> str:
    """The bindings that name this network to the trainer and to the way back.

    `byte_sentinels`: of a vocabulary of bytes, which needs no file.
    """
    fields = dataclasses.asdict(sizes)
    for fixed in ("relative_attention_num_buckets", "relative_attention_max_distance"):
        del fields[fixed]  # in T5X
    if not sizes.own_relative_bias:
        del fields["own_relative_bias"]  # a field that upstream's T5Config lacks
    lines = [f"network.T5Config.{name} = {value!r}" for name, value in fields.items()]
    imports = ["from t5x.examples.t5 import network"]
    if byte_sentinels is not None:
        imports.insert(0, "import seqio")
        lines.append(f"seqio.ByteVocabulary.extra_ids = {byte_sentinels}")
    return "\n".join([*imports, "", *lines, ""])


def _checked(name: str, array: LazyArray) -> LazyArray:
    """The array, its values looked at when it is read."""

    def fetch(index):
        values = array.read()
        to_hf.check_values(name, values)
        return values[index]

    return LazyArray(array.shape, array.dtype, fetch)


def _check_equal(path: Path, wanted: dict[str, LazyArray]) -> None:
    found = open_checkpoint(str(path))
    for name, array in wanted.items():
        read, written = array.read(), found[f"target/{name}"].read()
        if not all(np.array_equal(read[block], written[block]) for block in blocks(read)):
            raise ValueError(f"{path}: {name} was not written as it was read.")


def _write(folder: Path, run_folder: Path, step: int) -> Sizes:
    """Writes all of a run but its proof, from a Hugging Face folder; returns its network.

    Raises:
      ValueError: for another kind of model or damaged weights.
    """
    model = Published.open(folder)
    sizes = sizes_of_hugging_face(model.config)
    sizes = dataclasses.replace(sizes, logits_via_embedding=model.tied())
    tree = parameters(model, sizes)
    atomic_output.check_room(run_folder.parent, sum(4 * math.prod(a.shape) for a in tree.values()))
    arrays = {f"target/{name}": _checked(name, array) for name, array in tree.items()}
    arrays["state/step"] = from_numpy(np.asarray(step, np.int32))
    checkpoint = run_folder / f"checkpoint_{step}"
    t5x_checkpoint_writer.write(checkpoint, arrays)
    _check_equal(checkpoint, tree)
    if (folder / "spiece.model").is_file():
        shutil.copyfile(folder / "spiece.model", run_folder / model_dir.VOCABULARY)
    (run_folder / model_dir.GIN_FILES[0]).write_text(gin_of(sizes, model.byte_sentinels()))
    return sizes


def write_checkpoint(
    folder: Path,
    run_folder: Path,
    step: int = 0,
    verify_logits: bool = True,
    apart: bool = False,
) -> str:
    """Writes `run_folder/checkpoint_<step>` from a Hugging Face folder; returns its path.

    `apart`: as `convert.proof.verify.prove` takes it; what reads a .bin, PyTorch, then ends before
    the proof begins.

    Raises:
      ValueError: for another kind of model, damaged weights, a checkpoint that is there already,
        logits that differ, or a full disk; nothing is left then.
    """
    if model_dir.holds_run(run_folder):
        raise ValueError(f"{run_folder} holds a run already: name an empty folder.")
    with atomic_output.staged(run_folder) as temporary:
        sizes = run_apart(apart, _write, folder, temporary, step)
        give_back_freed_memory()
        if verify_logits:
            checkpoint = str(temporary / f"checkpoint_{step}")
            verify.prove(folder, [checkpoint], sizes, "float32", apart=apart)
    return str(run_folder.resolve() / f"checkpoint_{step}")


def _fetched(name: str) -> Path:
    """The folder of that name, or of the hub's model of that name."""
    if Path(name).is_dir() or name.count("/") != 1:
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"{name} is no folder, and the hub does not give it: {reason}") from error


def main(argv: list[str], apart: bool = False) -> int:
    """`python -m convert from_hf FOLDER OUT`; errors are ValueErrors of one sentence."""
    parser = argparse.ArgumentParser(
        prog="convert from_hf", description="A Hugging Face T5 to a T5X checkpoint."
    )
    parser.add_argument("folder", help="a folder, or the hub's user/name")
    parser.add_argument("out", type=Path, help="receives checkpoint_<step> and config.gin")
    parser.add_argument("--step", type=int, default=0, help="steps that it counts as trained")
    parser.add_argument("--no_verify", action="store_true", help="skip the comparison of logits")
    args = parser.parse_args(argv)
    folder, verify_logits = _fetched(args.folder), not args.no_verify
    print(write_checkpoint(folder, args.out, args.step, verify_logits, apart))
    return 0
