"""Convert a published T5 or encoder to a T5X checkpoint, to continue or fine-tune its training.

  write_checkpoint(Path("mt5-small"), Path("start"), step=0)

writes `start/checkpoint_0` with `target` and `state/step` (the optimizer starts fresh) and
`start/config.gin` with the network's sizes. A T5's folder with a SentencePiece model gives
`start/vocabulary.model`, whose `extra_ids` the gin binds; a ByT5's gin names its bytes. An
encoder's tokenizer is copied to `start/tokenizer/`. Only one tensor is in memory at a time.
Converting back gives the same bits.
"""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np

from common import arguments
from common.errors import UserError
from convert import hub, sizes, tokenizer, weight_map
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.proof.verify import verify
from convert.run import model_dir
from convert.run.rewrite import check_written, staged_run, write_run
from convert.run.vocabulary import TOKENIZER, sentencepiece_vocabulary
from convert.sizes import BertSizes, EncoderSizes, Sizes, T5Sizes
from convert.t5x_params import Tree
from t5x.checkpointing.lazy_array import LazyArray, from_numpy

FILES = ["config.json", "*.safetensors", "*.index.json", "pytorch_model*.bin"]
FILES += ["spiece.model", *tokenizer.FILES]


def network_of(model: HfCheckpoint) -> tuple[Sizes, Tree]:
    """Return a folder's network, and lazy float32 parameters under T5X's paths.

    The weights say whether a T5 has a head of its own, and whether a BERT has the pooler and
    next-sentence head, neither of which is used alone. Raise UserError unless the tensors are
    those of the table.
    """
    network = sizes.of_config(model.config)
    if isinstance(network, T5Sizes):
        untied = dataclasses.replace(network, logits_via_embedding=False)
        scales = _scales_embedding(model, weight_map.present(model.arrays, untied))
        network = dataclasses.replace(network, logits_via_embedding=scales)
    elif isinstance(network, BertSizes):
        has_head = model.arrays.keys() >= {*weight_map.NEXT_SENTENCE}
        network = dataclasses.replace(network, next_sentence=has_head)
    arrays = weight_map.present(model.arrays, network)
    if isinstance(network, T5Sizes) and not network.tied and "shared.weight" in arrays:
        # Without a head of its own the model reads logits with the unscaled embedding.
        arrays.setdefault("lm_head.weight", arrays["shared.weight"])
    shapes = {name: array.shape for name, array in arrays.items()}
    weight_map.guard_targets(network, shapes, str(model.folder))
    return network, {
        source: _lazy(tensor, part, arrays[tensor.target])
        for tensor in weight_map.tensors(network)
        for part, source in enumerate(tensor.sources)
    }


def _lazy(tensor: weight_map.MappedTensor, part: int, array: LazyArray) -> LazyArray:
    def fetch(index):
        return np.asarray(tensor.from_torch(array.read())[part], np.float32)[index]

    return LazyArray(tensor.shape, np.dtype(np.float32), fetch)


def _scales_embedding(model: HfCheckpoint, arrays: Tree) -> bool:
    """Return whether a T5 reads logits with the embedding, scaled as in T5 1.0.

    transformers 5 saves "tie_word_embeddings: true" for every T5. Whether it scales is in
    scale_decoder_outputs, and whether there is another head, in the weights. Raise UserError for a
    scaled separate head, which T5X's network does not have.
    """
    family = model.config["model_type"]
    key = "scale_decoder_outputs"
    key = key if key in model.config else "tie_word_embeddings"
    scaled = model.config.get(key, True) and family != "mt5"
    head, table = (arrays.get(f"{name}.weight") for name in ("lm_head", "shared"))
    same = head is None or table is None or np.array_equal(head.read(), table.read())
    if scaled and not same and family != "umt5":
        raise UserError(
            f"{model.folder} scales the inputs of a separate head, which T5X has no network for: "
            f"its config.json should say {key} false."
        )
    return bool(scaled and same)


def _write_vocabulary(model: HfCheckpoint, run_folder: Path) -> dict[str, int]:
    """Copy a T5's vocabulary, if it has one; return its number of sentinels by class of seqio."""
    if (in_bytes := model.byte_sentinels()) is not None:
        return {"ByteVocabulary": in_bytes}
    pieces = model.folder / "spiece.model"
    if not pieces.is_file():
        return {}
    shutil.copyfile(pieces, run_folder / model_dir.VOCABULARY)
    found = sentencepiece_vocabulary(str(pieces), model.extra_ids())
    return {"SentencePieceVocabulary": found.extra_ids}


def write_checkpoint(
    folder: Path, run_folder: Path, step: int = 0, verify_logits: bool = True
) -> str:
    """Write `run_folder/checkpoint_<step>` from a Hugging Face folder; return its path.

    Its logits are compared with those of transformers. A UserError leaves nothing behind.
    """
    with staged_run(run_folder) as temporary:
        model = HfCheckpoint.open(folder)
        network, tree = network_of(model)
        arrays = {f"target/{name}": array for name, array in tree.items()}
        arrays["state/step"] = from_numpy(np.asarray(step, np.int32))
        extra_ids = {}
        if isinstance(network, T5Sizes):
            extra_ids = _write_vocabulary(model, temporary)
        elif any((folder / name).is_file() for name in tokenizer.FILES):
            tokenizer.TokenizerFolder(str(folder)).write(temporary / TOKENIZER)
        path = write_run(temporary, step, arrays, network, extra_ids)
        check_written(path, arrays)
        if verify_logits:
            verify(folder, [path], network)
    return str(run_folder.resolve() / f"checkpoint_{step}")


def is_encoder(folder: Path) -> bool:
    """Return whether a folder's config.json names an encoder; without one it names nothing."""
    path = folder / "config.json"
    family = json.loads(path.read_text()).get("model_type") if path.is_file() else None
    return any(family in kind.families for kind in sizes.KINDS if issubclass(kind, EncoderSizes))


def main(argv: list[str]) -> int:
    """Run `python -m convert from_hf FOLDER OUT`; errors are UserErrors of one sentence."""
    about = "A Hugging Face T5, BERT, RoBERTa or ModernBERT to a T5X checkpoint."
    parser = arguments.parser("python -m convert from_hf", about)
    add = parser.add_argument
    add("folder", type=arguments.text, help="a folder, or the hub's user/name")
    add("out", type=arguments.text, help="receives checkpoint_<step> and config.gin")
    add("--step", type=arguments.integer(0), default=0, help="the step number it is saved under")
    add("--no_verify", action="store_true", help="skip the comparison of logits")
    args = parser.parse_args(argv)
    arguments.check_output_folder("OUT", args.out)
    folder = hub.download(args.folder, FILES)
    print(write_checkpoint(folder, Path(args.out), args.step, not args.no_verify))
    return 0
