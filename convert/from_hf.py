"""Convert a published T5 to a T5X checkpoint, to continue or fine-tune its training.

Encoders are converted by `convert.encoders.from_hf`.

  write_checkpoint(Path("mt5-small"), Path("start"), step=0)

writes `start/checkpoint_0` with `target` and `state/step` (the optimizer starts fresh),
`start/config.gin` with the network's sizes and, if the folder has one, `start/vocabulary.model`,
whose `extra_ids` the gin binds; a ByT5's gin names its bytes. Only one tensor is in memory at a
time. Converting back gives the same bits.
"""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np

from common import arguments
from convert import weight_map
from convert.encoders import from_hf as encoders
from convert.encoders import tokenizer_folder
from convert.encoders.sizes import ARCHITECTURES
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.proof.verify import verify
from convert.run import model_dir
from convert.run.rewrite import check_written, staged_run, write_run
from convert.run.vocabulary import sentencepiece_vocabulary
from convert.sizes import Sizes, sizes_of_hugging_face
from t5x.checkpointing.lazy_array import LazyArray, from_numpy

_FILES = ["config.json", "*.safetensors", "*.index.json", "pytorch_model*.bin"]
_FILES += ["spiece.model", *tokenizer_folder.FILES]
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def parameters(model: HfCheckpoint, sizes: Sizes) -> dict[str, LazyArray]:
    """Return lazy float32 tensors under T5X's paths, or raise ValueError if they do not fit."""
    arrays = dict(model.arrays)
    if sizes.tied:
        arrays.pop("lm_head.weight", None)
    else:  # without a head of its own the model reads logits with the unscaled embedding
        arrays.setdefault("lm_head.weight", arrays["shared.weight"])
    wanted = weight_map.tensors(sizes)
    weight_map.guard_targets(wanted, {name: array.shape for name, array in arrays.items()})

    def lazy(tensor: weight_map.MappedTensor) -> LazyArray:
        def fetch(index):
            values = arrays[tensor.target].read()
            values = values.T if tensor.kind.torch_transposes else values
            return np.asarray(values, np.float32)[index]

        return LazyArray(tensor.shape, np.dtype(np.float32), fetch)

    return {tensor.source: lazy(tensor) for tensor in wanted}


def _write(folder: Path, run_folder: Path, step: int) -> Sizes:
    """Write a run from a Hugging Face folder, without verifying its logits; return its network."""
    model = HfCheckpoint.open(folder)
    sizes = sizes_of_hugging_face(model.config)
    sizes = dataclasses.replace(sizes, logits_via_embedding=model.tied())
    tree = parameters(model, sizes)
    arrays = {f"target/{name}": array for name, array in tree.items()}
    arrays["state/step"] = from_numpy(np.asarray(step, np.int32))
    pieces, extra_ids = folder / "spiece.model", None
    if pieces.is_file():
        extra_ids = sentencepiece_vocabulary(str(pieces), model.extra_ids()).extra_ids
    in_bytes = model.byte_sentinels()
    path = write_run(run_folder, step, arrays, sizes, in_bytes, extra_ids=extra_ids)
    check_written(path, arrays)
    if pieces.is_file():
        shutil.copyfile(pieces, run_folder / model_dir.VOCABULARY)
    return sizes


def write_checkpoint(
    folder: Path, run_folder: Path, step: int = 0, verify_logits: bool = True
) -> str:
    """Write `run_folder/checkpoint_<step>` from a Hugging Face folder; return its path.

    A ValueError leaves nothing behind.
    """
    with staged_run(run_folder) as temporary:
        sizes = _write(folder, temporary, step)
        if verify_logits:
            verify(folder, [str(temporary / f"checkpoint_{step}")], sizes, "float32")
    return str(run_folder.resolve() / f"checkpoint_{step}")


def is_hub_name(name: str) -> bool:
    """Return whether this is OWNER/NAME of the hub rather than a file, a folder or an address."""
    return _HUB_NAME.fullmatch(name) is not None and not Path(name).exists()


def download(name: str) -> Path:
    """Return the folder of that name, or else download the hub's model of that name.

    Raises:
      ValueError: it is neither a folder nor a name of the hub, or it cannot be downloaded.
    """
    if Path(name).is_dir():
        return Path(name)
    if not is_hub_name(name):
        raise ValueError(
            f"{name} is not a folder, nor user/name of the hub: name a Hugging Face model's folder."
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"{name} is not a folder, and cannot be downloaded from the hub: {reason}"
        ) from error


def main(argv: list[str]) -> int:
    """Run `python -m convert from_hf FOLDER OUT`; errors are ValueErrors of one sentence."""
    about = "A Hugging Face T5, BERT, RoBERTa or ModernBERT to a T5X checkpoint."
    parser = arguments.parser("python -m convert from_hf", about)
    add = parser.add_argument
    add("folder", type=arguments.text, help="a folder, or the hub's user/name")
    add("out", type=arguments.text, help="receives checkpoint_<step> and config.gin")
    add("--step", type=arguments.integer(0), default=0, help="the step number it is saved under")
    add("--no_verify", action="store_true", help="skip the comparison of logits")
    args = parser.parse_args(argv)
    arguments.check_output_folder("OUT", args.out)
    folder, verify_logits = download(args.folder), not args.no_verify
    write = encoders.write_checkpoint if is_encoder(folder) else write_checkpoint
    print(write(folder, Path(args.out), args.step, verify_logits))
    return 0


def is_encoder(folder: Path) -> bool:
    """Return whether a folder's config.json names an encoder; without one it names nothing."""
    path = folder / "config.json"
    return path.is_file() and json.loads(path.read_text()).get("model_type") in ARCHITECTURES
