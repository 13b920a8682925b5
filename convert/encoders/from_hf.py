"""Convert a published BERT, RoBERTa, XLM-R or ModernBERT to a T5X checkpoint.

  write_checkpoint(Path("bert-base-multilingual-cased"), Path("start"), step=0)

writes `start/checkpoint_0` with `target` and `state/step` (the optimizer starts fresh),
`start/config.gin` with the network's sizes, and `start/tokenizer/` with the tokenizer's files.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convert.encoders import logits, weight_map
from convert.encoders.sizes import EncoderSizes, sizes_of_hugging_face
from convert.encoders.tokenizer_folder import FILES, IN_RUN, TokenizerFolder
from convert.formats import t5x_checkpoint_writer
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.proof.verify import compare
from convert.run import model_dir
from convert.run.rewrite import check_written, staged_run
from convert.t5x_params import check_values
from t5x.checkpointing.lazy_array import LazyArray, from_numpy


def network_of(model: HfCheckpoint) -> tuple[EncoderSizes, dict[str, LazyArray]]:
    """Return the sizes of a folder's network, and its tensors by today's names.

    BERT's pooler is kept with its next-sentence head only, since neither is used alone. Raise
    ValueError unless the tensors are those of the table.
    """
    sizes = sizes_of_hugging_face(model.config)
    renamed = ((weight_map.present_name(name), array) for name, array in model.arrays.items())
    arrays = {name: array for name, array in renamed if name is not None}
    heads = [name for name in arrays if name.startswith(("bert.pooler.", "cls.seq_relationship."))]
    sizes = sizes.with_next_sentence(len(heads) == 4)
    if not sizes.next_sentence:
        arrays = {name: array for name, array in arrays.items() if name not in heads}
    wanted = {tensor.target: tensor.torch_shape for tensor in weight_map.tensors(sizes)}
    shapes = {name: array.shape for name, array in arrays.items()}
    if difference := weight_map.first_difference(shapes, wanted):
        raise ValueError(
            f"{model.folder} is not the network that its config.json names ({sizes.summary()}): "
            f"{difference}. Take a folder with a masked-language head."
        )
    return sizes, arrays


def check_parameter(name: str, tensor: weight_map.EncoderTensor, values: np.ndarray) -> None:
    """Raise ValueError for values that are NaN, infinite or, in a kernel, all zeros."""
    if tensor.transposed:  # tables, norms and biases may be zeros
        check_values(name, values)
    elif not np.isfinite(values).all():
        raise ValueError(f"{name} holds values that are NaN or infinite: take another model.")


def parameters(sizes: EncoderSizes, arrays: Mapping[str, LazyArray]) -> dict[str, LazyArray]:
    """Return lazy float32 tensors under T5X's paths, each checked when it is read."""

    def lazy(tensor: weight_map.EncoderTensor, part: int) -> LazyArray:
        def fetch(index):
            values = tensor.split(arrays[tensor.target].read())[part]
            values = np.ascontiguousarray(values, np.float32)
            check_parameter(tensor.target, tensor, values)
            return values[index]

        return LazyArray(tensor.shape, np.dtype(np.float32), fetch)

    return {
        source: lazy(tensor, part)
        for tensor in weight_map.tensors(sizes)
        for part, source in enumerate(tensor.sources)
    }


def gin_of(sizes: EncoderSizes) -> str:
    """Return gin bindings of this network."""
    config = "ModernBertConfig" if sizes.modern else "BertConfig"
    lines = [f"network.{config}.{name} = {value!r}" for name, value in sizes.fields().items()]
    return "\n".join(["from t5x.examples.encoder import network", "", *lines, ""])


def _write(folder: Path, run_folder: Path, step: int) -> EncoderSizes:
    """Write a run from a Hugging Face folder, without comparing logits; return its network."""
    sizes, found = network_of(HfCheckpoint.open(folder))
    tree = parameters(sizes, found)
    arrays = {f"target/{name}": array for name, array in tree.items()}
    arrays["state/step"] = from_numpy(np.asarray(step, np.int32))
    checkpoint = run_folder / f"checkpoint_{step}"
    t5x_checkpoint_writer.write(checkpoint, arrays)
    check_written(str(checkpoint), arrays)
    (run_folder / model_dir.GIN_FILES[0]).write_text(gin_of(sizes))
    if any((folder / name).is_file() for name in FILES):
        (run_folder / IN_RUN).mkdir(exist_ok=True)
        TokenizerFolder(str(folder)).write(run_folder / IN_RUN)
    return sizes


def write_checkpoint(
    folder: Path, run_folder: Path, step: int = 0, verify_logits: bool = True
) -> str:
    """Write `run_folder/checkpoint_<step>` from a Hugging Face folder; return its path.

    Its logits are compared with those of transformers. A ValueError leaves nothing behind.
    """
    with staged_run(run_folder) as temporary:
        sizes = _write(folder, temporary, step)
        if verify_logits:
            batch = logits.probe_batch(sizes)
            theirs = logits.torch_logits(folder, batch)
            ours = logits.trainer_logits([str(temporary / f"checkpoint_{step}")], sizes, batch)
            real = batch["encoder_segment_ids"] > 0
            compare(ours[real], theirs[real])
    return str(run_folder.resolve() / f"checkpoint_{step}")
