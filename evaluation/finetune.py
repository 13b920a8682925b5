"""Fine-tune a model on one task in one language, and measure it on the test split, for each seed.

    bash launch/finetune.sh topic --language ro --model runs/ro_t5x_base --seeds 5

The recipe is gin/<job>.gin, with the network, vocabulary and newest checkpoint of the model. Each
seed trains in <out>/seed_<n>, stops early on the validation split, and is measured with its best
checkpoint. <out>/results.json has the numbers of every seed, mean and deviation (of a sample,
n - 1), versions, commit and commands. The means also enter the run of the model, and each seed's
numbers its own run, so that the report and the model card have them. The same command resumes, and
does not repeat what it has measured. Another checkpoint, language or flag needs another <out>.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from common import arguments
from common.errors import ROOT, UserError, guarded
from common.metric_names import CONFUSION
from common.small_files import parse_json, parsing, read_json
from convert import from_hf
from convert.run import model_dir, rewrite
from convert.run.loss_curve import OF_PRETRAINED, metrics_file
from convert.run.vocabulary import vocabulary_of
from convert.sizes import EncoderSizes, T5Sizes
from evaluation import results
from tasks.jobs import downstream

PACKAGES = ("flax", "jax", "jiwer", "numpy", "rouge-score", "sacrebleu", "sentencepiece", "seqio")
# Settings of each training, and the flags that they follow from.
OWN = {"MODEL_DIR": "--out", "RANDOM_SEED": "--seeds", "LANGUAGE": "--language"}
OWN |= {"INITIAL_CHECKPOINT_PATH": "--model"}
RESULTS, MODEL_GIN, SETTINGS = "results.json", "model.gin", "settings.json"


def starting_run(model: str, out: pathlib.Path) -> model_dir.TrainedRun:
    """Return the run to start from; a Hugging Face folder is converted to one in `out` first.

    Raises:
      UserError: there is neither a run nor a Hugging Face folder, or it is of an encoder.
    """
    folder = pathlib.Path(model)
    if from_hf.is_encoder(folder):
        raise _encoder(model)
    if not (folder / "config.json").is_file():
        return model_dir.open_run(model)
    start = out / "start"
    if not model_dir.holds_run(start):
        run_command(["convert", "from_hf", str(folder.resolve()), str(start)])
    return model_dir.open_run(str(start))


def _encoder(model: str) -> UserError:
    to_set = "fine-tune it with transformers, as docs/encoders.md shows"
    return UserError("--model", model, "an encoder", to_set)


def model_gin(run: model_dir.TrainedRun) -> str:
    """Return gin of the run's network and vocabulary, to be read after the recipe of a job.

    Raises:
      UserError: the run has no saved network or vocabulary, or is no T5's.
    """
    sizes, bindings = model_dir.network(run)
    if isinstance(sizes, EncoderSizes):
        raise _encoder(run.folder)
    if not isinstance(sizes, T5Sizes):
        raise UserError(
            "--model",
            run.folder,
            f"a {sizes.family}, and the recipes of these jobs train a T5",
            "fine-tune it on rows of yours with python -m tasks.new_job --from",
        )
    vocabulary = vocabulary_of(run, bindings, folders=[pathlib.Path.cwd(), ROOT])
    lines = [line for line in rewrite.gin_of(sizes).splitlines() if ".dropout_rate" not in line]
    # Published weights have no dtype, and are fine-tuned in the recipe's, as most runs are.
    dtype = bindings.of(sizes.configuration).get("dtype") if bindings else None
    if dtype:
        lines.append(f"network.{sizes.configuration}.dtype = {dtype!r}")
    if vocabulary.is_bytes:
        kind = "ByteVocabulary"
        lines.append("VOCABULARY = @seqio.ByteVocabulary()")
    else:
        kind = "SentencePieceVocabulary"
        path = vocabulary.path if "://" in vocabulary.path else os.path.abspath(vocabulary.path)
        lines.append(f"seqio.{kind}.sentencepiece_model_file = {path!r}")
    lines.append(f"seqio.{kind}.extra_ids = {vocabulary.extra_ids!r}")
    return "\n".join(["from __gin__ import dynamic_registration", "import seqio", *lines, ""])


def keep_settings(out: pathlib.Path, model: str, settings: Mapping[str, Any]) -> None:
    """Write what all seeds in `out` have in common: gin of the model, and settings by name.

    Raises:
      UserError: the seeds there have another model or other settings.
    """
    path, gin = out / SETTINGS, out / MODEL_GIN
    saved = settings
    if path.exists():
        with parsing(path, f"remove {out} to start again"):
            saved = read_json(path)
            saved = {name: saved[name] for name in settings}
    others = [
        f"{name} {saved[name]!r} and not {value!r}"
        for name, value in settings.items()
        if saved[name] != value
    ]
    if gin.exists() and gin.read_text() != model:
        others.insert(0, "another model")
    if others:
        why = f"which has results of {', '.join(others)}"
        raise UserError("--out", str(out), why, "name another folder")
    results.write(str(gin), model)
    _write_json(path, settings)


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    results.write(str(path), json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def commands(
    job: str, language: str, checkpoint: str, out: pathlib.Path, seed: int, flags: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the arguments of `python -m` that train a seed, and those that measure it."""
    folder = str(out / f"seed_{seed}")
    train = ["t5x.train", f"--gin_file=gin/{job}.gin", f"--gin_file={out / MODEL_GIN}"]
    train += gin_flags(MODEL_DIR=folder, RANDOM_SEED=seed, LANGUAGE=language)
    train += [*gin_flags(INITIAL_CHECKPOINT_PATH=checkpoint), *flags]
    # The run's own configuration has the flags; an evaluation refuses a training's flags.
    test = ["t5x.eval", f"--gin_file={folder}/config.gin"]
    test += ["--gin_file=t5x/configs/runs/eval.gin"]
    test += gin_flags(CHECKPOINT_PATH=folder, EVAL_OUTPUT_DIR=f"{folder}/test")
    test += ["--gin.utils.RestoreCheckpointConfig.mode='best'"]
    return train, test


def gin_flags(**values: object) -> list[str]:
    """Return --gin.NAME=VALUE of values by name."""
    return [f"--gin.{name}={value!r}" for name, value in values.items()]


def run_command(words: Sequence[str]) -> None:
    """Run `python -m` with the words in the repository; exit with its status if it fails."""
    # Descriptor 2 may be a log, see `common.log`.
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, stderr=sys.stderr, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def measure(folder: pathlib.Path, job: str, train: Sequence[str], test: Sequence[str]) -> dict:
    """Return the metrics of a seed's test split; train and measure it if there are none yet.

    Raises:
      UserError: the evaluation has written none.
    """
    path = metrics_file(folder / "test", job)
    if (metrics := _last_line(path)) is None:
        run_command(train)
        run_command(test)
        metrics = _last_line(path)
    if metrics is None:
        raise UserError(
            str(path),
            why="is missing or empty after the evaluation, so that the seed has no metrics",
            to_set="read what it printed above, and start this command again",
        )
    return metrics


def _last_line(path: pathlib.Path) -> dict | None:
    if not path.is_file():
        return None
    with parsing(path, "remove it to measure again"):
        lines = [line for line in path.read_text().split("\n") if line.strip()]
        return parse_json(lines[-1]) if lines else None


def summary(seeds: Sequence[Mapping]) -> dict[str, dict[str, float | None]]:
    """Return mean and deviation of each metric over seeds; the deviation of one seed is None."""
    summaries: dict[str, dict[str, float | None]] = {}
    for name, first in seeds[0].items():
        if isinstance(first, int | float) and name not in ("seed", "step"):
            values = [float(seed[name]) for seed in seeds]
            deviation = statistics.stdev(values) if len(values) > 1 else None
            summaries[name] = {"mean": statistics.fmean(values), "deviation": deviation}
    return summaries


def without_confusion(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics without the cells of the confusion matrix, which are many."""
    return {name: value for name, value in metrics.items() if not name.startswith(CONFUSION)}


def report(job: str, summaries: Mapping[str, Mapping[str, float | None]], seeds: int) -> str:
    """Return the means as lines, with deviations if there are several seeds."""
    lines = [f"{job}, test split, {seeds} {'seed' if seeds == 1 else 'seeds'}:"]
    for name, value in without_confusion(summaries).items():
        spread = "" if value["deviation"] is None else f" ± {value['deviation']:.2g}"
        lines.append(f"  {name:24} {value['mean']:8.4g}{spread}")
    return "\n".join(lines)


def publish(run: model_dir.TrainedRun, out: pathlib.Path, result: Mapping[str, Any]) -> None:
    """Add the figures of the test split to the seeds' runs and to the run they started from.

    There `python -m report` draws them, and the converter puts them into the model card.
    """
    job, summaries = result["job"], without_confusion(result["summary"])
    for seed in result["seeds"]:
        values = {name: seed[name] for name in summaries}
        results.add_to_run(out / f"seed_{seed['seed']}", f"{job}_test", seed["step"], values)
    if run.local:
        values = {}
        for name, value in summaries.items():
            values[name] = value["mean"]
            if value["deviation"] is not None:
                values[f"{name}_deviation"] = value["deviation"]
        values["seeds"] = len(result["seeds"])
        series = f"{OF_PRETRAINED[1]}{job}_{result['config']}"
        results.add_to_run(run.local, series, result["step"], values)


def _arguments(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = arguments.parser("bash launch/finetune.sh", __doc__)
    add = parser.add_argument
    add("job", choices=downstream.JOBS, help="the task to train")
    add("--language", type=arguments.text, required=True, help="a code (ron_Latn, ro) or a name")
    add("--model", type=arguments.text, required=True, help="a run or a Hugging Face folder")
    add("--seeds", type=arguments.integer(1), default=1, help="number of trainings, default 1")
    add("--out", type=arguments.text, help="default runs/<model>_<job>_<language>")
    return with_gin_flags(parser, argv)


def with_gin_flags(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None
) -> tuple[argparse.Namespace, list[str]]:
    """Return the flags of a command, and those that it gives to the trainer."""
    args, flags = parser.parse_known_args(argv)
    for flag in flags:
        if not flag.startswith(("--gin.", "--gin_file=")):
            parser.error(f"{flag!r} is neither a flag of this command nor --gin.NAME=VALUE")
    return args, flags


def check_flags(flags: Sequence[str], own: Mapping[str, str]) -> None:
    """Refuse flags of the trainer that would replace what a command sets in each training.

    `own` are the settings, each with the flag of the command that it follows from.
    """
    for flag in flags:
        name = flag.removeprefix("--gin.").partition("=")[0].strip()
        if name in own:
            why = "would replace what this command sets in each training"
            raise UserError(f"--gin.{name}", why=why, to_set=f"use {own[name]} instead")


@guarded
def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure all seeds, and write the results."""
    args, flags = _arguments(argv)
    check_flags(flags, OWN)
    config = downstream.config(args.job, args.language)
    name = pathlib.Path(args.model.rstrip("/")).resolve().name
    out = pathlib.Path(args.out or ROOT / "runs" / f"{name}_{args.job}_{config}").resolve()
    run = starting_run(args.model, out)
    model = model_gin(run)
    step, checkpoint = max(run.checkpoints.items())
    settings = {"job": args.job, "language": config, "checkpoint": checkpoint, "flags": flags}
    out.mkdir(parents=True, exist_ok=True)
    keep_settings(out, model, settings)
    seeds, measured_by = [], []
    for seed in range(args.seeds):
        train, test = commands(args.job, args.language, checkpoint, out, seed, flags)
        seeds.append({"seed": seed, **measure(out / f"seed_{seed}", args.job, train, test)})
        measured_by += [shlex.join(["python", "-m", *words]) for words in (train, test)]
    result = {
        "job": args.job,
        "language": args.language,
        "config": config,
        "data": downstream.JOBS[args.job].title,
        "model": args.model,
        "step": step,
        "split": "test",
        "seeds": seeds,
        "summary": summary(seeds),
        **results.provenance(*PACKAGES),
        "commands": measured_by,
    }
    _write_json(out / RESULTS, result)
    publish(run, out, result)
    print(report(args.job, result["summary"], args.seeds))
    print(f"{out / RESULTS}")


if __name__ == "__main__":
    main()
