"""Fine-tune a model on one task in one language, and measure it on the test split, for each seed.

    bash launch/finetune.sh topic --language ro --model runs/ro_t5x_base --seeds 5

The recipe is gin/<job>.gin, with the network, vocabulary and newest checkpoint of the model. Each
seed trains in <out>/seed_<n>, stops early on the validation split, and is measured with its best
checkpoint.
<out>/results.json has the numbers of every seed, mean and deviation (of a sample, n - 1), versions,
commit and commands. The means also enter the run of the model, and each seed's numbers its own run,
so that the report and the model card have them. Run again, it resumes; what is measured stays as it
is, and another checkpoint, language or flag needs another <out>.
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

from common import arguments
from common.errors import ROOT, UserError, guarded
from common.small_files import parse_json, parsing, read_json
from convert import from_hf
from convert.run import model_dir, rewrite
from convert.run.loss_curve import OF_PRETRAINED
from convert.run.vocabulary import vocabulary_of
from convert.sizes import EncoderSizes
from evaluation import results
from tasks.jobs import downstream

PACKAGES = ("flax", "jax", "jiwer", "numpy", "rouge-score", "sacrebleu", "sentencepiece", "seqio")
OF_ENCODERS = "{} is an encoder: fine-tune it with transformers, as docs/encoders.md shows"
RESULTS, MODEL_GIN, SETTINGS = "results.json", "model.gin", "settings.json"


def starting_run(model: str, out: pathlib.Path) -> model_dir.TrainedRun:
    """Return the run to start from; a Hugging Face folder is converted to one in `out` first.

    Raises:
      UserError: there is neither a run nor a Hugging Face folder, or it is of an encoder.
    """
    folder = pathlib.Path(model)
    if from_hf.is_encoder(folder):
        raise UserError(OF_ENCODERS.format(model))
    if not (folder / "config.json").is_file():
        return model_dir.open_run(model)
    start = out / "start"
    if not model_dir.holds_run(start):
        run_command(["convert", "from_hf", str(folder.resolve()), str(start)])
    return model_dir.open_run(str(start))


def model_gin(run: model_dir.TrainedRun) -> str:
    """Return gin of the run's network and vocabulary, to be read after the recipe of a job.

    Raises:
      UserError: the run has no saved network or vocabulary, or is of an encoder.
    """
    sizes, bindings = model_dir.network(run)
    if isinstance(sizes, EncoderSizes):
        raise UserError(OF_ENCODERS.format(run.folder))
    vocabulary = vocabulary_of(run, bindings, folders=[pathlib.Path.cwd(), ROOT])
    fields = rewrite.gin_of(sizes).splitlines()
    lines = [line for line in fields if ".dropout_rate" not in line]
    # Published weights have no dtype, and are fine-tuned in the recipe's, as most runs are.
    dtype = bindings.of("T5Config").get("dtype") if bindings else None
    lines += [f"network.T5Config.dtype = {dtype!r}"] if dtype else []
    if vocabulary.is_bytes:
        lines += [
            "VOCABULARY = @seqio.ByteVocabulary()",
            f"seqio.ByteVocabulary.extra_ids = {vocabulary.extra_ids!r}",
        ]
    else:
        path = vocabulary.path if "://" in vocabulary.path else os.path.abspath(vocabulary.path)
        lines += [f"seqio.SentencePieceVocabulary.sentencepiece_model_file = {path!r}"]
        lines += [f"seqio.SentencePieceVocabulary.extra_ids = {vocabulary.extra_ids!r}"]
    return "\n".join(["from __gin__ import dynamic_registration", "import seqio", *lines, ""])


def keep_settings(out: pathlib.Path, model: str, settings: Mapping) -> None:
    """Write what all seeds in `out` have in common: gin of the model, and settings by name.

    Raises:
      UserError: the seeds there have another model or other settings.
    """
    if (out / MODEL_GIN).exists() and (out / MODEL_GIN).read_text() != model:
        raise UserError(f"{out} has results of another model: name another folder with --out")
    path = out / SETTINGS
    before = settings
    if path.exists():
        with parsing(path, f"remove {out} to start again"):
            before = read_json(path)
            before = {name: before[name] for name in settings}
    differing = [name for name in settings if before[name] != settings[name]]
    if differing:
        said = ", ".join(f"{k} {before[k]!r} and not {settings[k]!r}" for k in differing)
        raise UserError(f"{out} has results of {said}: name another folder with --out")
    (out / MODEL_GIN).write_text(model)
    _write_json(path, settings)


def _write_json(path: pathlib.Path, found: Mapping) -> None:
    results.write(str(path), json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def commands(
    job: str,
    language: str,
    checkpoint: str,
    out: pathlib.Path,
    seed: int,
    flags: Sequence[str],
) -> tuple[list[str], list[str]]:
    """Return the arguments of `python -m` that train a seed and that measure its test split."""
    folder = out / f"seed_{seed}"
    train = ["t5x.train", f"--gin_file=gin/{job}.gin", f"--gin_file={out / MODEL_GIN}"]
    train += _bound(MODEL_DIR=str(folder), RANDOM_SEED=seed, LANGUAGE=language)
    train += [*_bound(INITIAL_CHECKPOINT_PATH=checkpoint), *flags]
    # The run's own configuration has the flags; an evaluation refuses a training's flags.
    test = ["t5x.eval", f"--gin_file={folder / 'config.gin'}"]
    test += ["--gin_file=t5x/configs/runs/eval.gin"]
    test += _bound(CHECKPOINT_PATH=str(folder), EVAL_OUTPUT_DIR=str(folder / "test"))
    test += ["--gin.utils.RestoreCheckpointConfig.mode='best'"]
    return train, test


def _bound(**values) -> list[str]:
    return [f"--gin.{name}={value!r}" for name, value in values.items()]


def run_command(words: Sequence[str]) -> None:
    """Run `python -m` with the words in the repository; exit with its status if it fails."""
    # Descriptor 2 may be a log, see `common.log`.
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, stderr=sys.stderr, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def measured(folder: pathlib.Path, job: str) -> dict | None:
    """Return the metrics of the test split as seqio logged them, None if there are none."""
    path = metrics_file(folder, job)
    if not path.is_file():
        return None
    with parsing(path, "remove it to measure again"):
        lines = [line for line in path.read_text().split("\n") if line.strip()]
        return parse_json(lines[-1]) if lines else None


def metrics_file(folder: pathlib.Path, job: str) -> pathlib.Path:
    """Return the file that seqio logs the metrics of a seed's test split to."""
    return folder / "test" / "inference_eval" / f"{job}-metrics.jsonl"


def summary(seeds: Sequence[Mapping]) -> dict[str, dict[str, float | None]]:
    """Return mean and deviation of each metric over seeds; the deviation of one seed is None."""
    numbers = [name for name, value in seeds[0].items() if isinstance(value, int | float)]
    names = [name for name in numbers if name not in ("seed", "step")]
    values = {name: [float(seed[name]) for seed in seeds] for name in names}
    deviate = lambda found: statistics.stdev(found) if len(found) > 1 else None
    return {k: {"mean": statistics.fmean(v), "deviation": deviate(v)} for k, v in values.items()}


def report(job: str, found: Mapping[str, Mapping[str, float | None]], seeds: int) -> str:
    """Return the means as lines, with deviations if there are several seeds."""
    lines = [f"{job}, test split, {seeds} {'seed' if seeds == 1 else 'seeds'}:"]
    for name, value in found.items():
        if _is_confusion(name):
            continue
        mean, deviation = value["mean"], value["deviation"]
        spread = "" if deviation is None else f" ± {deviation:.2g}"
        lines.append(f"  {name:24} {mean:8.4g}{spread}")
    return "\n".join(lines)


def publish(run: model_dir.TrainedRun, out: pathlib.Path, found: Mapping) -> None:
    """Add the figures of the test split to the seeds' runs and to the run they started from.

    There `python -m report` draws them, and the converter puts them into the model card.
    """
    job, config = found["job"], found["config"]
    for seed in found["seeds"]:
        values = {name: seed[name] for name in found["summary"] if not _is_confusion(name)}
        results.add_to_run(out / f"seed_{seed['seed']}", f"{job}_test", seed["step"], values)
    if run.local:
        means = {}
        for name, value in found["summary"].items():
            if not _is_confusion(name):
                means[name] = value["mean"]
                if value["deviation"] is not None:
                    means[f"{name}_deviation"] = value["deviation"]
        values = {**means, "seeds": len(found["seeds"])}
        results.add_to_run(run.local, f"{OF_PRETRAINED[1]}{job}_{config}", found["step"], values)


def _is_confusion(name: str) -> bool:
    return name.startswith("confusion/")


def _arguments(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = arguments.parser("bash launch/finetune.sh", __doc__)
    add = parser.add_argument
    add("job", choices=downstream.JOBS, help="the task to train")
    add("--language", type=arguments.text, required=True, help="a code (ron_Latn, ro) or a name")
    add("--model", type=arguments.text, required=True, help="a run or a Hugging Face folder")
    add("--seeds", type=arguments.integer(1), default=1, help="number of trainings, default 1")
    add("--out", type=arguments.text, help="default runs/<model>_<job>_<language>")
    known, flags = parser.parse_known_args(argv)
    for flag in flags:
        if not flag.startswith(("--gin.", "--gin_file=")):
            parser.error(f"{flag!r} is neither a flag of this command nor --gin.NAME=VALUE")
    return known, flags


@guarded
def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure all seeds, and write the results."""
    args, flags = _arguments(argv)
    config = downstream.config(args.job, args.language)
    name = pathlib.Path(args.model.rstrip("/")).resolve().name
    out = pathlib.Path(args.out or ROOT / "runs" / f"{name}_{args.job}_{config}").resolve()
    run = starting_run(args.model, out)
    model = model_gin(run)
    step, checkpoint = max(run.checkpoints.items())
    settings = {"job": args.job, "language": config, "checkpoint": checkpoint, "flags": flags}
    out.mkdir(parents=True, exist_ok=True)
    keep_settings(out, model, settings)
    seeds, said = [], []
    for seed in range(args.seeds):
        folder = out / f"seed_{seed}"
        train, test = commands(args.job, args.language, checkpoint, out, seed, flags)
        if measured(folder, args.job) is None:
            run_command(train)
            run_command(test)
        if (metrics := measured(folder, args.job)) is None:
            raise UserError(
                f"seed {seed} has no metrics: {metrics_file(folder, args.job)} is missing or empty "
                "after the evaluation: read what it printed above, and start this command again"
            )
        seeds.append({"seed": seed, **metrics})
        said += [shlex.join(["python", "-m", *words]) for words in (train, test)]
    found = {
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
        "commands": said,
    }
    _write_json(out / RESULTS, found)
    publish(run, out, found)
    print(report(args.job, found["summary"], args.seeds))
    print(f"{out / RESULTS}")


if __name__ == "__main__":
    main()
