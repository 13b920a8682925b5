"""Convert a published T5 or encoder to a T5X checkpoint, to continue or fine-tune its training.

    python -m convert from_hf google/mt5-small runs/start
    write_checkpoint(Path("mt5-small"), Path("runs/start"), step=0)

The run gets:

- `checkpoint_0` with `target` and `state/step`; the optimizer starts fresh
- `config.gin` with the network's sizes and the number of sentinels after the vocabulary
- `vocabulary.model` for a T5 with a SentencePiece model, `tokenizer/` for an encoder
- `generation_config.json`, which says how a T5 generates

One tensor is in memory at a time, except for Flax files, which are read whole. Converting back
gives the same bits; only the norm before the head of a umT5, and all norms of a T5Gemma 2, may
differ in their last bit. Settings that are not kept, and may have an effect, are printed.
"""

import dataclasses
import itertools
import shutil
import tempfile
from pathlib import Path

import numpy as np

from common import arguments, small_files
from common.errors import UserError, first_line
from common.new_files import staged_folder
from common.printable import printable
from common.tables import first_names
from convert import atomic_output, hub, sizes, tokenizer, weight_map
from convert.formats import safetensors_writer
from convert.formats.hf_checkpoint_reader import HfCheckpoint, read_json, weights_file
from convert.formats.sentencepiece_model import SENTINEL
from convert.proof.verify import verify
from convert.run import model_dir
from convert.run.rewrite import check_written, write_run
from convert.run.vocabulary import TOKENIZER, sentencepiece_vocabulary
from convert.sizes import T5_IDS, BertSizes, EncoderDecoderSizes, EncoderSizes, Sizes, T5Sizes
from convert.t5x_params import Tree
from t5x.checkpointing.lazy_array import LazyArray, from_numpy

FILES = ["config.json", "generation_config.json", "spiece.model", *tokenizer.FILES]
FILES += ["*.index.json", "*.safetensors", "pytorch_model*.bin"]
FLAX_FILES = ["flax_model*.msgpack"]
_MOST_NAMED = 20  # tokens or settings in a line


def network_of(model: HfCheckpoint) -> tuple[Sizes, Tree]:
    """Return a folder's network, and lazy float32 parameters under T5X's paths.

    The weights decide whether a T5 has a separate head, and whether a BERT has a pooler and a
    next-sentence head.

    Raises:
      UserError: the tensors are not those of `convert.weight_map`.
    """
    with small_files.parsing(model.folder / "config.json", "take another copy of the model"):
        network = sizes.read_config(model.config)
    scale = 1.0
    if isinstance(network, T5Sizes):
        untied = dataclasses.replace(network, logits_via_embedding=False)
        own_head = _has_own_head(weight_map.present(model.arrays, untied))
        scaled = _scales_outputs(model)
        network = dataclasses.replace(network, logits_via_embedding=scaled and not own_head)
        scale = network.emb_dim**-0.5 if scaled and own_head else 1.0
    elif isinstance(network, BertSizes):
        has_head = model.arrays.keys() >= {*weight_map.NEXT_SENTENCE}
        network = dataclasses.replace(network, next_sentence=has_head)
    arrays = weight_map.present(model.arrays, network)
    if isinstance(network, T5Sizes) and not network.tied and "shared.weight" in arrays:
        # Without a head of its own the model reads logits with the unscaled embedding.
        arrays.setdefault("lm_head.weight", arrays["shared.weight"])
    shapes = {name: array.shape for name, array in arrays.items()}
    weight_map.guard_targets(network, shapes, str(model.folder))
    weight_map.guard_copies(model.arrays, arrays, str(model.folder))
    tree = {
        source: _lazy(tensor, part, arrays[tensor.target])
        for tensor in weight_map.tensors(network)
        for part, source in enumerate(tensor.sources)
    }
    return network, weight_map.scale_output(tree, scale)


def _lazy(tensor: weight_map.MappedTensor, part: int, array: LazyArray) -> LazyArray:
    def fetch(index):
        return np.asarray(tensor.from_torch(array.read())[part], np.float32)[index]

    return LazyArray(tensor.shape, np.dtype(np.float32), fetch)


def _has_own_head(arrays: Tree) -> bool:
    head, table = (arrays.get(f"{name}.weight") for name in ("lm_head", "shared"))
    return bool(head and table and not np.array_equal(head.read(), table.read()))


def _scales_outputs(model: HfCheckpoint) -> bool:
    """Return whether a T5 scales what its head reads, as T5 1.0 does.

    transformers 5 saves "tie_word_embeddings: true" for every T5, and only scale_decoder_outputs
    says whether it scales the output. Its mT5 never scales.
    """
    keys = ("scale_decoder_outputs", "tie_word_embeddings")
    values = [model.config[key] for key in keys if model.config.get(key) is not None]
    return model.config["model_type"] != "mt5" and bool([*values, True][0])


def _write_vocabulary(model: HfCheckpoint, run_folder: Path) -> tuple[dict[str, int], int]:
    """Copy a T5's vocabulary; return its extra ids by the class of seqio, and its eos.

    Tokens that the run's vocabulary lacks are printed.
    """
    added = model.added_tokens()
    if (in_bytes := model.byte_sentinels()) is not None:
        lacking = [token for token, i in added.items() if i > 2 and not SENTINEL.fullmatch(token)]
        _print_lost(model, lacking)
        return {"ByteVocabulary": in_bytes}, T5_IDS["eos_token_id"]
    pieces = model.folder / "spiece.model"
    if not pieces.is_file():
        print(f"{model.folder} has no spiece.model: the run gets no vocabulary.")
        return {}, T5_IDS["eos_token_id"]
    shutil.copyfile(pieces, run_folder / model_dir.VOCABULARY)
    vocabulary = sentencepiece_vocabulary(str(pieces), model.extra_ids())
    processor = tokenizer.load_sentencepiece(vocabulary.path, vocabulary.extra_ids)
    names = [SENTINEL.sub(r"\1", processor.IdToPiece(i)) for i in range(len(processor))]
    _print_lost(model, [token for token, i in added.items() if names[i : i + 1] != [token]])
    return {"SentencePieceVocabulary": vocabulary.extra_ids}, vocabulary.eos_id


def _print_lost(model: HfCheckpoint, tokens: list[str]) -> None:
    if tokens:
        print(
            f"{model.folder} adds tokens that the run's vocabulary lacks, so that their text has "
            f"other ids: {first_names([*map(repr, tokens)], _MOST_NAMED)}."
        )


def _write_generation(model: HfCheckpoint, run_folder: Path, eos_id: int) -> set[str]:
    """Keep how a T5 generates, from generation_config.json or else config.json.

    Return the names of all settings of generation.

    Raises:
      UserError: a special id is not the run's.
    """
    from transformers import GenerationConfig

    settable = {*GenerationConfig().to_dict()}
    settings = read_json(model.folder, model_dir.GENERATION)
    settings = settings or {name: value for name, value in model.config.items() if name in settable}
    ids = T5_IDS | {"eos_token_id": eos_id}
    files = {"config.json": T5_IDS | model.config, model_dir.GENERATION: settings}
    for file, name in itertools.product(files, ids):
        if (value := files[file].get(name)) not in (None, ids[name], [ids[name]]):
            raise UserError(
                name,
                value,
                f"but the run's T5 would have {ids[name]}",
                "set it so, if the model was trained so",
            ).at(str(model.folder / file))
    dropped = {*sizes.NO_EFFECT, *T5_IDS}
    generation = {k: v for k, v in settings.items() if k not in dropped and v is not None}
    try:
        GenerationConfig.from_dict(generation)
    except (ValueError, TypeError, AttributeError) as error:
        why = f"has settings that transformers refuses: {first_line(error)[:200]}"
        file = str(model.folder / model_dir.GENERATION)
        raise UserError(file, why=why, to_set="take them out") from error
    if generation:
        atomic_output.write_json(run_folder / model_dir.GENERATION, generation)
    return settable


def write_checkpoint(
    folder: Path, run_folder: Path, step: int = 0, verify_logits: bool = True
) -> str:
    """Write `run_folder/checkpoint_<step>` from a Hugging Face folder; return its path.

    The logits are compared with transformers'. After an error nothing is left.
    """
    with staged_folder(run_folder) as temporary:
        model = HfCheckpoint.open(folder)
        network, tree = network_of(model)
        arrays = {f"target/{name}": array for name, array in tree.items()}
        arrays["state/step"] = from_numpy(np.asarray(step, np.int32))
        extra_ids: dict[str, int] = {}
        generation: set[str] = set()
        if isinstance(network, EncoderDecoderSizes):
            extra_ids, eos_id = _write_vocabulary(model, temporary)
            generation = _write_generation(model, temporary, eos_id)
        elif (folder / "tokenizer.json").is_file():
            tokenizer.TokenizerFolder(str(folder)).write(temporary / TOKENIZER)
        else:  # old models have vocab.txt alone
            print(
                f"{folder} has no tokenizer.json: the run gets no vocabulary. transformers can "
                f"make it: AutoTokenizer.from_pretrained({str(folder)!r})"
                f".save_pretrained({str(run_folder / TOKENIZER)!r})"
            )
        if dropped := sizes.unknown(model.config, network) - generation:
            print(
                f"{folder} has settings in its config.json that are not kept: "
                f"{printable(first_names(sorted(dropped), _MOST_NAMED))}."
            )
        path = write_run(temporary, step, arrays, network, extra_ids)
        check_written(path, arrays)
        if verify_logits:
            _verify(model, path, network)
    return str(run_folder.resolve() / f"checkpoint_{step}")


def _verify(model: HfCheckpoint, path: str, network: Sizes) -> None:
    """Compare logits; Flax weights become safetensors first, since transformers 5 reads no Flax."""
    if not model.is_flax:
        verify(model.folder, [path], network)
        return
    with tempfile.TemporaryDirectory() as folder:
        safetensors_writer.write(Path(folder), model.arrays, "float32")
        shutil.copy(model.folder / "config.json", folder)
        verify(Path(folder), [path], network)


def is_encoder(folder: Path) -> bool:
    """Return whether a folder has a config.json that names an encoder."""
    family = read_json(folder, "config.json").get("model_type")
    return any(family in kind.families for kind in sizes.KINDS if issubclass(kind, EncoderSizes))


def main(argv: list[str]) -> int:
    """Run `python -m convert from_hf FOLDER OUT`, and return the exit status."""
    parser = arguments.parser("python -m convert from_hf", __doc__)
    add = parser.add_argument
    add("folder", type=arguments.text, help="a folder, or the hub's user/name")
    add("out", type=arguments.text, help="receives checkpoint_<step> and config.gin")
    add("--step", type=arguments.integer(0), default=0, help="the step number it is saved under")
    add("--no_verify", action="store_true", help="skip the comparison of logits")
    args = parser.parse_args(argv)
    arguments.check_output_folder("OUT", args.out)
    if args.step > (most := np.iinfo(np.int32).max):
        raise UserError("--step", args.step, f"but may be at most {most:,}, which int32 holds")
    folder = hub.download(args.folder, FILES)
    if not weights_file(folder):
        folder = hub.download(args.folder, [*FILES, *FLAX_FILES])
    print(write_checkpoint(folder, Path(args.out), args.step, not args.no_verify))
    return 0
