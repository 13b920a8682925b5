"""Convert a run's checkpoints to Hugging Face folders, or a published model to a checkpoint.

    python -m convert runs/ro_t5x_base --language ro --license apache-2.0
    python -m convert runs/ro_t5x_base/checkpoint_2000 --push_to_hub user/name
    python -m convert from_hf google/mt5-small runs/mt5_small

Without a folder, it converts the newest run of runs/. `python -m convert from_hf --help` lists the
flags of the last command.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from etils import epath

from common import arguments
from common.errors import ROOT, UserError, guarded
from common.gin_reader import Bindings
from convert import bucket, from_hf, hub, publishable, to_hf
from convert.card import CardMetadata
from convert.hub import language_code, license_id
from convert.proof.torch_logits import ENCODER_MASK, MASK
from convert.run import loss_curve, model_dir
from convert.sizes import T5Sizes
from convert.tokenizer import TokenizerFolder, TrainedVocabulary, Vocabulary


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = arguments.parser("python -m convert", __doc__)
    add, text = parser.add_argument, arguments.text
    about = "a run's MODEL_DIR or one checkpoint (default: newest of runs/)"
    add("folder", nargs="?", type=text, help=about)
    about = "receives checkpoint_<step>/; a folder, s3://… or gs://… (default: <run>_hf)"
    add("--out", type=text, help=about)
    about = "network if there is no gin: t5_1_1/base, a .gin, or a .json"
    add("--config", type=text, help=about)
    about = "SentencePiece model, 'bytes' (ByT5), an encoder's tokenizer folder, or 'none' for "
    about += "weights alone"
    add("--vocabulary", type=text, help=about)
    add("--model_type", choices=sorted(T5Sizes.families), help="default: the network's")
    about = "of the converted weights (default: float32)"
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help=about)
    about = "default: pytorch and flax"
    add("--formats", nargs="+", choices=to_hf.FORMATS, default=to_hf.FORMATS, help=about)
    add("--all", action="store_true", help="every checkpoint of the run, even if one was named")
    about = "one mean of the last N checkpoints"
    add("--average", type=arguments.integer(1), default=1, metavar="N", help=about)
    add("--no_verify", action="store_true", help="skip the verification, and say so in the card")
    _add_published(parser)
    args = parser.parse_args(argv)
    if args.out and "://" in args.out:
        bucket.check(args.out)
    elif args.out:
        arguments.check_output_folder("--out", args.out)
    return args


def _add_published(parser: argparse.ArgumentParser) -> None:
    """Add the flags that describe the published model."""
    add, text = parser.add_argument, arguments.text
    add("--language", nargs="+", type=language_code, default=(), help="for the model card, e.g. ro")
    add("--license", type=license_id, help="for the model card, e.g. apache-2.0")
    about = "for the model card, hub names; it shows their licences"
    add("--datasets", nargs="+", type=text, default=(), help=about)
    about = "inputs whose outputs the model card shows (default: the run's INFILL_SENTENCES)"
    add("--examples", nargs="+", type=text, metavar="SENTENCE", help=about)
    about = "upload the last one; token from HF_TOKEN"
    add("--push_to_hub", type=text, metavar="USER/NAME", help=about)
    add = parser.add_mutually_exclusive_group().add_argument
    about = "make a new repository of --push_to_hub private (default: its owner's setting)"
    add("--private", action="store_true", default=None, help=about)
    add("--public", action="store_false", dest="private", default=None, help="make it public")


def _options(run: model_dir.TrainedRun, args: argparse.Namespace) -> to_hf.ConversionOptions:
    choices = (args.config, args.vocabulary, args.model_type)
    sizes, bindings, vocabulary = publishable.describe(run, *choices)
    if isinstance(vocabulary, TokenizerFolder):
        _check_masks(args.examples or (), vocabulary)
    return to_hf.ConversionOptions(
        sizes=sizes,
        out=Path(args.out or f"{run.folder if run.local else run.name}_hf"),
        vocabulary=vocabulary,
        dtype=args.dtype,
        formats=tuple(name for name in to_hf.FORMATS if name in args.formats),
        average=args.average,
        verify=not args.no_verify,
        texts=_prefixed(run, args.examples or _own_texts(run, bindings, vocabulary)),
        metadata=CardMetadata(
            tuple(args.language),
            args.license,
            tuple(args.datasets),
            args.push_to_hub,
            hub.dataset_licenses(args.datasets),
        ),
    )


def _check_masks(examples: Iterable[str], vocabulary: TokenizerFolder) -> None:
    """Raise UserError for an example in which an encoder has nothing to fill in."""
    masks = (ENCODER_MASK, vocabulary.roles.get("mask", ENCODER_MASK))
    for text in examples:
        if not any(mask in text for mask in masks):
            why = f"but has no {ENCODER_MASK}, and an encoder fills in nothing else"
            raise UserError("--examples", text, why, f"write {ENCODER_MASK} in place of a word")


def _prefixed(run: model_dir.TrainedRun, texts: Iterable[str]) -> tuple[str, ...]:
    prefix = model_dir.prefix_of(run.inference())
    return tuple(f"{prefix}{text.removeprefix(prefix)}" for text in texts)


def _own_texts(
    run: model_dir.TrainedRun, bindings: Bindings | None, vocabulary: Vocabulary | None
) -> tuple[str, ...]:
    """Return the sentences that the run filled in, or a single mask if it has learned to fill in.

    Texts that a fine-tuned run decoded are not published, since they may be private.
    """
    infill = bindings.first("infill_sentences") if bindings else None
    sentences = tuple(infill) if isinstance(infill, list | tuple) else ()
    fine_tuned = loss_curve.was_fine_tuned(epath.Path(run.folder))
    return sentences or (
        (MASK,) if isinstance(vocabulary, TrainedVocabulary) and not fine_tuned else ()
    )


def _language(run: model_dir.TrainedRun) -> str | None:
    """Return the language code that `tasks.new_language` put into the task's name, or None."""
    gin = run.gin()
    task = gin and Bindings.read(gin).macro("MIXTURE_OR_TASK_NAME")
    code, _, rest = str(task).partition("_")
    with contextlib.suppress(argparse.ArgumentTypeError):
        return language_code(code) if rest.endswith("span_corruption") else None
    return None


@guarded
def main(argv: list[str]) -> int:
    """Convert, upload if requested, and return the exit status."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Read buckets with gcsfs: TensorFlow would take 300 MB. And do not ask for a bucket's kind
    # (hierarchical or not), which needs a login.
    os.environ.setdefault("EPATH_USE_TF", "false")
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    if argv[:1] == ["from_hf"]:
        return from_hf.main(argv[1:])
    args = _arguments(argv)
    if args.push_to_hub:
        hub.check_access(args.push_to_hub)
    run = model_dir.open_run(args.folder or model_dir.newest_run(ROOT / "runs"))
    options = _options(run, args)
    if args.all or args.average > 1:
        run = model_dir.open_run(run.folder)
    with contextlib.ExitStack() as work:
        if in_bucket := args.out and "://" in args.out:
            options = dataclasses.replace(
                options, out=Path(work.enter_context(tempfile.TemporaryDirectory()))
            )
        for folder in to_hf.convert(run, options):
            if in_bucket:
                print(bucket.upload(folder, f"{args.out.rstrip('/')}/{folder.name}"))
        if args.push_to_hub:
            print(hub.upload(folder, args.push_to_hub, args.private))
    has_examples = bool(options.texts) or options.vocabulary is None or not options.verify
    if hint := options.metadata.hint(_language(run), has_examples):
        print(hint)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
