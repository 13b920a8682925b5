"""A published T5 as a T5X checkpoint, to be continued or fine-tuned here or in T5X.

  write_checkpoint(Path("mt5-small"), Path("start"), step=0)

writes `start/checkpoint_0` with `target` and `state/step` (an optimizer starts afresh),
`start/config.gin` with the network's sizes and, where the folder has one,
`start/vocabulary.model`. The way back gives the same bits.
"""

import argparse
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from convert import logits, rules, runs, to_hf, trees, verify
from convert.config import Sizes, sizes_of_hugging_face
from convert.published import Published
from t5x import checkpoint_folders
from t5x.lazy_array import LazyArray

_FILES = ("config.json", "*.safetensors", "*.index.json", "pytorch_model*.bin", "spiece.model")


def _turned(array: LazyArray, turn: bool) -> np.ndarray:
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
    wanted = rules.tensors(sizes)
    rules.guard_targets(wanted, {name: array.shape for name, array in arrays.items()})

    def lazy(tensor: rules.Tensor) -> LazyArray:
        array, turn = arrays[tensor.target], tensor.kind.torch_turns
        whole = lambda index: _turned(array, turn)[index]
        return LazyArray(tensor.shape, np.dtype(np.float32), whole)

    return {tensor.source: lazy(tensor) for tensor in wanted}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """{"a/b": leaf} as {"a": {"b": leaf}}."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, leaf = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def gin_of(sizes: Sizes) -> str:
    """The bindings that name this network to the trainer and to the way back."""
    fields = dataclasses.asdict(sizes)
    for ours in ("relative_attention_num_buckets", "relative_attention_max_distance", "own_bias"):
        del fields[ours]  # fixed in T5X, or seen from the tensors
    lines = [f"network.T5Config.{name} = {value!r}" for name, value in fields.items()]
    return "\n".join(["from t5x.examples.t5 import network", "", *lines, ""])


def _check_equal(path: str, wanted: dict[str, LazyArray]) -> trees.Tree:
    tree = trees.open_tree([path])
    for name, array in wanted.items():
        if not np.array_equal(tree[name].read(), array.read()):
            raise ValueError(f"{path}: {name} was not written as it was read.")
    return tree


def write_checkpoint(
    folder: Path, run_folder: Path, step: int = 0, verify_logits: bool = True
) -> str:
    """Writes `run_folder/checkpoint_<step>` from a Hugging Face folder; returns its path.

    Raises:
      ValueError: for another kind of model, damaged weights, a checkpoint that is there already,
        or logits that differ.
    """
    from t5x.checkpoints import Checkpointer

    model = Published.open(folder)
    sizes = sizes_of_hugging_face(model.config)
    sizes = dataclasses.replace(sizes, logits_via_embedding=model.tied())
    tree = parameters(model, sizes)
    path = checkpoint_folders.step_folder(str(run_folder.resolve()), step)
    if Path(path).exists() or (run_folder / runs.GIN_FILES[0]).exists():
        raise ValueError(f"{run_folder} holds a run already: name an empty folder.")
    if verify_logits:
        theirs = verify.torch_logits(folder, sizes, verify.is_large(sizes))
        verify.compare(logits.trainer_logits(tree, sizes, logits.fixed_batch(sizes)), theirs)
    target = {}
    for name, array in tree.items():
        target[name] = array.read()
        to_hf.check_values(name, target[name])
    with Checkpointer(str(run_folder)) as checkpointer:
        state = {"step": np.asarray(step, np.int32)}
        checkpointer.save(step, {"target": nested(target), "state": state})
    _check_equal(path, tree)
    if (folder / "spiece.model").is_file():
        shutil.copyfile(folder / "spiece.model", run_folder / runs.VOCABULARY)
    (run_folder / runs.GIN_FILES[0]).write_text(gin_of(sizes))
    return path


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


def main(argv: list[str]) -> int:
    """`python -m convert from_hf FOLDER OUT`; errors are ValueErrors of one sentence."""
    parser = argparse.ArgumentParser(
        prog="convert from_hf", description="A Hugging Face T5 to a T5X checkpoint."
    )
    parser.add_argument("folder", help="a folder, or the hub's user/name")
    parser.add_argument("out", type=Path, help="receives checkpoint_<step> and config.gin")
    parser.add_argument("--step", type=int, default=0, help="steps that it counts as trained")
    parser.add_argument("--no_verify", action="store_true", help="skip the comparison of logits")
    args = parser.parse_args(argv)
    print(write_checkpoint(_fetched(args.folder), args.out, args.step, not args.no_verify))
    return 0
