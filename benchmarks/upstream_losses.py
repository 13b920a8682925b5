"""Ten losses of each recipe with upstream's trainer and with ours, from the same parameters.

    bash launch/upstream.sh ~/upstream
    python -m benchmarks.upstream_losses ~/upstream/t5x                  # all recipes
    python -m benchmarks.upstream_losses ~/upstream/t5x ro_t5x_tiny

Both trainers are started by launch/train.sh, each in its own process, with the same
flags. Upstream's begins from scratch and saves step 0; ours restores that checkpoint, by a relative
path. Then both train ten steps on what the recipe's own pipeline gives: shuffled, masked and packed
at run time. The flags reduce the network (2 layers of width 64; activations, tied logits and the
number of ids are the recipe's), the batch and the lengths, turn dropout off and choose float32.
Recipes whose corpus or vocabulary is not in the repository read the bundled text instead. The batch
is odd, because ours then reads the corpus in one stream, as upstream does; other batches have the
rows of eight streams. tests/gin/test_recipe_facts.py compares what the recipes say at full size.
"""

import argparse
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys

from t5x.monitoring.event_files import read_events

ROOT = pathlib.Path(__file__).resolve().parent.parent
LACKING = ("t5x/examples/encoder", "gin/optimizers/")  # paths that upstream lacks
STEPS = 10
LIMIT = 1e-5  # greatest relative difference of a loss
WORK = "runs/upstream_losses"  # relative, as a user would write it
QUALITY = f"{WORK}/quality.csv"
FLAGS = {
    "TRAIN_STEPS": STEPS,
    "BATCH_SIZE": 5,
    "DROPOUT_RATE": 0.0,
    "train.stats_period": 1,
    "train.train_eval_dataset_cfg": None,
    "train.infer_eval_dataset_cfg": None,
    "train.run_eval_before_training": False,
    "utils.SaveCheckpointConfig.period": STEPS,
    # Upstream's would also restore the data position of the checkpoint that a run starts from.
    "utils.SaveCheckpointConfig.save_dataset": False,
    "utils.RestoreCheckpointConfig.strict": True,
    "partitioning.PjitPartitioner.num_partitions": 1,
    "network.T5Config.dtype": "float32",
    "network.T5Config.emb_dim": 64,
    "network.T5Config.num_heads": 2,
    "network.T5Config.head_dim": 32,
    "network.T5Config.mlp_dim": 128,
    "network.T5Config.num_encoder_layers": 2,
    "network.T5Config.num_decoder_layers": 2,
}
BUNDLED = "data/ro_mini/ro_mini.model"
JOBS = ("entities", "inference", "paraphrase", "summary", "topic", "translation")
# In the place of what is not in the repository, by the beginning of the recipe's name.
STAND_INS = {
    "ro_t5x": {"MIXTURE_OR_TASK_NAME": "ro_mini_span_corruption"},
    "ro_mt5x": {"MIXTURE_OR_TASK_NAME": "ro_mini_span_corruption"},
    "ro_diacritics_base": {"MIXTURE_OR_TASK_NAME": "ro_mini_diacritics"},
    "quality": {
        "MIXTURE_OR_TASK_NAME": "quality_tiny",
        "tasks.jobs.classification.quality_files.train": QUALITY,
        "tasks.jobs.classification.quality_files.test": QUALITY,
    },
    "summarize": {
        "MIXTURE_OR_TASK_NAME": "mini_summaries",
        "MIXTURE_OR_TASK_MODULE": "benchmarks.mini_summaries",
    },
    **{
        job: {
            "MIXTURE_OR_TASK_NAME": "mini_summaries",
            "MIXTURE_OR_TASK_MODULE": "benchmarks.mini_summaries",
            "TRAIN_STEPS_RELATIVE": None,
            "KEEP_BEST": None,
            "BEST_METRIC": None,
            "train.actions": None,
        }
        for job in JOBS
    },
}
LENGTHS = {  # lengths of inputs and targets; short ones need less memory for 250,112 logits
    "ro_t5x": (64, 15),
    "ro_mt5x": (64, 15),
    "ro_simple": (64, 64),
    "ro_diacritics": (64, 64),
    "quality": (64, 2),
    "summarize": (64, 32),
    **dict.fromkeys(JOBS, (64, 32)),
}


def all_recipes() -> list[str]:
    """Return the names of the recipes of LENGTHS that upstream's trainer can train too."""
    texts = {path.stem: path.read_text() for path in (ROOT / "gin").glob("*.gin")}
    recipes = [name for name, text in texts.items() if not any(path in text for path in LACKING)]
    return sorted(name for name in recipes if name.startswith(tuple(LENGTHS)))


def flags_of(recipe: str) -> list[str]:
    """Return the flags that reduce a recipe, for both trainers."""
    (lengths,) = [pair for begin, pair in LENGTHS.items() if recipe.startswith(begin)]
    settings = FLAGS | {
        "TASK_FEATURE_LENGTHS": dict(zip(("inputs", "targets"), lengths, strict=True))
    }
    if "byt5" not in recipe and "simple" not in recipe:
        settings["seqio.SentencePieceVocabulary.sentencepiece_model_file"] = BUNDLED
    if "KEEP_BEST" in (ROOT / f"gin/{recipe}.gin").read_text():
        settings |= {"KEEP_BEST": None, "BEST_METRIC": None}  # nothing is decoded here
    for begin, stand_in in STAND_INS.items():
        if recipe.startswith(begin):
            settings |= stand_in
    return [f"--gin.{name}={value!r}" for name, value in settings.items()]


def train(recipe: str, folder: str, flags: list[str], upstream: pathlib.Path | None) -> None:
    """Run the recipe's launch script into a folder of the repository, from scratch.

    Raises:
      RuntimeError: it failed; the end of its output is in the message.
    """
    shutil.rmtree(ROOT / folder, ignore_errors=True)
    environment = {**os.environ, "MODEL_DIR": str(ROOT / folder), "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    environment |= {"T5X_DIR": str(upstream or "")}
    command = ["bash", "launch/train.sh", recipe, *flags]
    if upstream is None:
        environment["PYTHON"] = sys.executable
        command.append("--allow_unpublishable")  # the bundled vocabulary has fewer ids than rows
    else:
        environment.pop("PYTHON", None)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        output = done.stderr[-3000:]
        raise RuntimeError(f"{' '.join(command)} with T5X_DIR={upstream or ''} failed:\n{output}")


def losses(folder: str) -> dict[int, float]:
    """Return the loss of each step, as the run's TensorBoard files have it."""
    by_step: dict[int, float] = {}
    for path in (ROOT / folder / "train").glob("events.out.tfevents.*"):
        loss = read_events(path.read_bytes()).scalars["loss"]
        by_step |= zip(loss.steps, loss.values, strict=True)
    return by_step


def greatest_difference(recipe: str, upstream: pathlib.Path) -> tuple[float, list[float]]:
    """Return the greatest relative difference of the losses, and upstream's losses in order.

    Raises:
      RuntimeError: a trainer failed, or does not report all steps.
    """
    write_questions()
    flags, first, second = flags_of(recipe), f"{WORK}/{recipe}/upstream", f"{WORK}/{recipe}/ours"
    path = "--gin.utils.RestoreCheckpointConfig.path"
    train(recipe, first, [*flags, f"{path}=[]"], upstream)
    start = [f"{path}={f'{first}/checkpoint_0'!r}"]
    start += ["--gin.utils.RestoreCheckpointConfig.mode='specific'"]
    train(recipe, second, [*flags, *start], None)
    theirs, ours = losses(first), losses(second)
    if not set(theirs) == set(ours) == set(range(1, STEPS + 1)):
        raise RuntimeError(f"{recipe}: losses of steps {sorted(theirs)} and {sorted(ours)}")
    return max(abs(ours[n] / theirs[n] - 1) for n in theirs), [theirs[n] for n in sorted(theirs)]


def write_questions() -> None:
    """Write QUALITY: lines of the bundled corpus as questions, with labels in turn."""
    lines = (ROOT / "data/ro_mini/validation.jsonl").read_text().splitlines()
    (ROOT / QUALITY).parent.mkdir(parents=True, exist_ok=True)
    with (ROOT / QUALITY).open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["Title", "Body", "Y"])
        for number, line in enumerate(lines):
            text = json.loads(line)["text"]
            label = ("LQ_CLOSE", "LQ_EDIT", "HQ")[number * number % 7 % 3]
            table.writerow([" ".join(text.split()[:5]), f"<p>{text[:300]}</p>", label])


def main(argv: list[str] | None = None) -> int:
    """Print what differs and the table; return 1 if a loss does."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("upstream", type=pathlib.Path, help="a checkout of launch/upstream.sh")
    flags.add_argument("recipes", nargs="*", help="default: all of T5's in gin/")
    values = flags.parse_args(argv)
    worst = 0.0
    for recipe in values.recipes or all_recipes():
        difference, curve = greatest_difference(recipe, values.upstream.expanduser().resolve())
        worst = max(worst, difference)
        print(f"{recipe:26} {difference:.1e}   loss {curve[0]:.3f} to {curve[-1]:.3f}", flush=True)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
