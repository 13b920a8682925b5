"""Which of two texts is better to end a run on? Finish the run with each, and measure both.

    python -m evaluation.compare cs_web cs_books --at runs/cs_long/checkpoint_700000 \\
        --steps 20000 --language cs

A and B are registered tasks or mixtures, with the run's vocabulary. Each seed makes a cooldown
branch of the checkpoint with each text: the run's own recipe, the same steps, and the texts from
their beginning in the order of the seed. The checkpoints are measured on held-out text of a third
source, as `python -m evaluation` does: --text, or FineWeb-2's. The same command resumes, and works
side by side on machines that share --out. A larger --seeds adds seeds.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse
import math
import os
import pathlib
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from common import arguments
from common.errors import ROOT, UserError, guarded
from common.gin_reader import Bindings
from common.small_files import parsing, read_json
from common.tables import amount
from convert.run import model_dir
from evaluation import finetune, measures, models, trials
from preflight.aot.recipe import Recipe, load
from t5x.checkpointing import layout
from t5x.cli import dry_run
from t5x.start.vocabulary import verify_matching_vocabs

POINTS, LOSSES = 4, 20  # of a branch's curves: checkpoints, and logged losses
# Settings of each branch, and the arguments that they follow from.
OWN = {"MODEL_DIR": "--out", "MIXTURE_OR_TASK_NAME": "A and B", "COOLDOWN_FROM": "--at"}
OWN |= {"TRAIN_STEPS_RELATIVE": "--steps", "RANDOM_SEED": "--seeds"}
FEWEST_PASSAGES = 30
RESULTS, PAGE = "results.jsonl", "compare.html"
# 95 % of chance: normal, and Student's t of the means of two groups of 2, 3, … seeds each. Of 30
# passages, Student's t is 2.05.
NORMAL, STUDENT = 1.96, (4.303, 2.776, 2.447, 2.306, 2.228, 2.179, 2.145, 2.120, 2.101)


class Trial(NamedTuple):
    """A branch with a text; seeds are from 1, and 0 is the checkpoint itself."""

    text: str
    seed: int


class Difference(NamedTuple):
    """Bits a byte of A less those of B, and how much of that chance explains in 95 of 100 cases."""

    value: float
    by_passages: float  # which passages are held out
    by_seeds: float | None  # in which order the texts are read; None of one seed

    def sentence(self, a: str, b: str) -> str:
        """Return which text is better, that there is no difference, or that one seed is too few."""
        by_both = math.hypot(self.by_passages, self.by_seeds or 0.0)
        is_chance = abs(self.value) <= by_both
        better = f"{a if self.value < 0 else b} is better"
        which = "not decided" if self.by_seeds is None else better
        which = "no difference" if is_chance else which
        by = f"±{self.by_passages:.4f} by the choice of passages"
        if self.by_seeds is not None:
            by = f"±{by_both:.4f}: {by}, ±{self.by_seeds:.4f} by the seed"
        more = "; --seeds 3 measures what the seed explains" if self.by_seeds is None else ""
        return f"{which}: {self.value:+.4f} bits a byte; chance explains {by}{more}"


def difference(a: Sequence[trials.Result], b: Sequence[trials.Result]) -> Difference:
    """Return the difference of two texts, of the results of each one's seeds.

    Passages are compared in pairs, since both texts are asked for the same; seeds are not, since a
    seed means another order in each text.
    """
    costs = [np.array([line["passages"] for line in lines]) for lines in (a, b)]
    bits = [of_seeds[..., 0].mean(axis=0) for of_seeds in costs]  # [passages]
    measure = measures.ratio((bits[0] - bits[1]).tolist(), costs[0][0, :, 1].tolist())
    count, by_seeds = len(a), None
    if count > 1:
        variance = sum(statistics.variance(line["value"] for line in lines) for lines in (a, b))
        by_seeds = STUDENT[min(count, len(STUDENT) + 1) - 2] * math.sqrt(variance / count)
    return Difference(measure.value, NORMAL * measure.error, by_seeds)


def seed_of(trial: Trial, flags: argparse.Namespace) -> int:
    """Return the seed of a branch, none of the run's: it may have read the text in its order."""
    return (Bindings.read(flags.recipe).macro("RANDOM_SEED") or 0) + trial.seed


def branch(trial: Trial, flags: argparse.Namespace) -> list[str]:
    """Return the trainer's flags of a trial, after the recipe of the run."""
    values = {
        "MODEL_DIR": str(flags.out / trials.name_of(trial)),
        "MIXTURE_OR_TASK_NAME": trial.text,
        "COOLDOWN_FROM": flags.checkpoint,
        "TRAIN_STEPS_RELATIVE": flags.steps,
        "RANDOM_SEED": seed_of(trial, flags),
        "EXPECTED_LOSS": None,
        "train_script.train.cooldown_restore_dataset": False,
        "train_script.train.train_eval_dataset_cfg": None,
        "train_script.train.infer_eval_dataset_cfg": None,
        "train_script.train.run_eval_before_training": False,
        "train_script.train.stats_period": math.ceil(flags.steps / LOSSES),
        "utils.SaveCheckpointConfig.period": math.ceil(flags.steps / POINTS),
        "utils.SaveCheckpointConfig.keep": None,
        "utils.SaveCheckpointConfig.keep_best": None,
        "utils.SaveCheckpointConfig.metric": None,
    }
    values |= {"MIXTURE_OR_TASK_MODULE": flags.module} if flags.module else {}
    return [*finetune.gin_flags(**values), *flags.gin]


def check_text(trial: Trial, flags: argparse.Namespace) -> None:
    """Check that a branch can be made, reads its text in its order, and reads none twice.

    Raises:
      UserError: no task has the name, its vocabulary is not the run's, it has too little text, or
        the recipe names another text or order.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".gin") as file:
        file.write(flags.recipe)
        file.flush()
        words, (setting, gin_file) = branch(trial, flags), ("--gin.", "--gin_file=")
        files = (word.removeprefix(gin_file) for word in words if word.startswith(gin_file))
        bindings = tuple(word.removeprefix(setting) for word in words if word.startswith(setting))
        run = load(Recipe((file.name, *files), bindings, (str(ROOT),)))
    cfg, last = run.train_dataset_cfg, run.total_steps
    of_trial = {"mixture_or_task_name": trial.text, "seed": seed_of(trial, flags)}
    for name, value in of_trial.items():
        if (bound := getattr(cfg, name)) != value:
            why = f"by the recipe or a flag, and not {value!r} as in this branch"
            to_set = "leave it to MIXTURE_OR_TASK_NAME and RANDOM_SEED, which the branches bind"
            raise UserError(f"train/utils.DatasetConfig.{name}", bound, why, to_set)
    verify_matching_vocabs(cfg, run.model)
    for row in dry_run.corpora(cfg, last - flags.steps, last).values():
        if (epochs := row.numbers.get("epochs", 0.0)) > 1:
            tokens, read = (amount(row.numbers[name]) for name in ("tokens", "read"))
            why = f"has {tokens} tokens, of which {flags.steps:,} steps read {read}, {epochs:.2g} "
            why += "epochs: text would be repeated, which is another question"
            to_set = f"set --steps to {int(flags.steps / epochs):,} or less"
            raise UserError(trial.text, why=why, to_set=to_set)


def run_trial(trial: Trial, flags: argparse.Namespace) -> trials.Result:
    """Train a branch, or the rest of it, and measure its checkpoints; return what they measure."""
    folder = flags.out / trials.name_of(trial)
    model, path = str(folder) if trial.seed else flags.checkpoint, folder / "evaluation.json"
    if trial.seed:
        gin_file = f"--gin_file={flags.out / finetune.MODEL_GIN}"
        finetune.run_command(["t5x.train", gin_file, *branch(trial, flags)])
    words = ["evaluation", model, "--every_checkpoint", "--per_passage"]
    words += ["--without", "words", "pairs", "--out", str(path)]
    words += ["--text", flags.text] if flags.text else []
    for name in ("language", "objective", "passages", "max_chars"):
        words += [f"--{name}", str(getattr(flags, name))]
    folder.mkdir(exist_ok=True)
    finetune.run_command(words)
    with parsing(path, "remove it, and start this command again"):
        measured = read_json(path)
        last = measured["models"][-2]  # after it come the n-grams
        if (count := len(last["passages"])) < FEWEST_PASSAGES:
            raise UserError(
                flags.text or "The held-out text of FineWeb-2",
                why=f"has {count} passages of 20 words or more, and fewer than {FEWEST_PASSAGES} "
                "do not show how much the choice of passages explains",
                to_set="name more documents with --text",
            )
        return {
            "value": last["measures"]["bits_per_byte"][0],
            "passages": last["passages"],
            "text_sha256": measured["settings"]["text_sha256"],
        }


def remove_points(folder: pathlib.Path) -> None:
    """Remove all checkpoints of a branch but the last."""
    for step in layout.all_steps(str(folder))[:-1]:
        shutil.rmtree(layout.step_folder(str(folder), step))


def report(planned: Sequence[Trial], results: Mapping[Trial, trials.Result]) -> str:
    """Return a line for the checkpoint and for each text, and which text is better.

    Raises:
      UserError: not all were measured on the same held-out text.
    """
    if len({results[trial]["text_sha256"] for trial in planned}) > 1:
        why = "has changed since some of the branches were measured"
        raise UserError("--text", why=why, to_set="name another --out")
    texts = list(dict.fromkeys(trial.text for trial in planned))
    lines = [[results[trial] for trial in planned if trial.text == text] for text in texts]
    rows = []
    for text, of_text in zip(texts, lines, strict=True):
        values = [line["value"] for line in of_text]
        spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        rows.append(f"{text}: {statistics.fmean(values):.4f}{spread} bits a byte")
    return "\n".join([*rows, difference(*lines[1:]).sentence(*texts[1:])])


@guarded
def main(argv: Sequence[str] | None = None) -> None:
    """Check both texts, run what is missing, print the result and write the page."""
    flags = _arguments(argv)
    finetune.check_flags(flags.gin, OWN)
    jax.config.update("jax_platforms", "cpu")  # the devices are those of the commands it starts
    if len({trials.name_of(Trial(text, 1)) for text in flags.texts}) < 2:
        why = (
            "which is A too" if flags.a == flags.b else f"whose folders would be those of {flags.a}"
        )
        raise UserError("B", flags.b, why, "name another text")
    arguments.check_output_folder("--out", str(flags.out))
    run = model_dir.open_run(flags.at)
    _, flags.checkpoint = max(run.checkpoints.items())
    flags.recipe = run.gin()
    if flags.recipe is None:
        why = f"has no {' and no '.join(model_dir.GIN_FILES)}, which is the recipe of its branches"
        raise UserError(run.folder, why=why, to_set="name a checkpoint of a run")
    branches = [Trial(text, seed + 1) for seed in range(flags.seeds) for text in flags.texts]
    for trial in branches[:2]:
        check_text(trial, flags)
    names = ["texts", "checkpoint", "steps", "language", "text", "objective", "passages"]
    settings = {name: getattr(flags, name) for name in [*names, "max_chars", "gin"]}
    flags.out.mkdir(parents=True, exist_ok=True)
    finetune.keep_settings(flags.out, flags.recipe, settings)
    if flags.dry_run:
        gin_file = f"--gin_file={flags.out / finetune.MODEL_GIN}"
        for trial in branches[:2]:
            finetune.run_command(["t5x.train", gin_file, *branch(trial, flags), "--dry_run"])
        return
    # The checkpoint comes first, so a held-out text that cannot be read stops it before training.
    planned = [Trial(pathlib.PurePath(flags.checkpoint).name, 0), *branches]
    results = trials.run_all(
        Trial,
        lambda results: [trial for trial in planned if trial not in results],
        lambda trial: run_trial(trial, flags),
        lambda trial: remove_points(flags.out / trials.name_of(trial)),
        flags.out,
        flags.out / RESULTS,
        flags.release,
    )
    folders = [str(flags.out / trials.name_of(trial)) for trial in branches]
    finetune.run_command(["report", *folders, "--out", str(flags.out / PAGE)])
    print(report(planned, results))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments.parser("python -m evaluation.compare", __doc__)
    add = parser.add_argument
    add("a", type=arguments.text, metavar="A", help="a task or mixture")
    add("b", type=arguments.text, metavar="B", help="another")
    about = "a checkpoint before the decay of its run"
    add("--at", required=True, type=arguments.text, metavar="CHECKPOINT", help=about)
    add("--steps", required=True, type=arguments.integer(1), help="of the decay")
    add("--language", required=True, type=arguments.text, help="of the held-out text: ro, ces_Latn")
    add("--text", type=arguments.text, help="held-out documents, neither of A nor of B")
    add("--seeds", type=arguments.integer(1), default=3, help="branches of each text, default 3")
    add("--module", type=arguments.text, help="that registers A and B, if the recipe does not")
    about = "how the model was trained, default span_corruption"
    add("--objective", choices=models.OBJECTIVES, default=models.SPAN_CORRUPTION, help=about)
    about = "how many of the held-out text, default 400"
    add("--passages", type=arguments.integer(FEWEST_PASSAGES), default=400, help=about)
    about = "length of a passage, default 1000"
    add("--max_chars", type=arguments.integer(200), default=1000, help=about)
    add("--out", type=arguments.text, help="default runs/compare_A_B")
    add("--dry_run", action="store_true", help="check both branches, say how long one takes, end")
    add("--release", metavar="HOST", help="a machine that was killed: others take its branches")
    flags, gin_flags = finetune.with_gin_flags(parser, argv)
    flags.texts, flags.gin = [flags.a, flags.b], gin_flags
    default = ROOT / "runs" / f"compare_{flags.a}_{flags.b}"
    flags.out = pathlib.Path(flags.out or default).resolve()
    if flags.text and "://" not in flags.text:
        flags.text = os.path.abspath(flags.text)  # commands are started in the repository
    return flags


if __name__ == "__main__":
    main()
