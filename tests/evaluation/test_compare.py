"""Which text is better is said by a rule that chance rarely fools; each branch is run once."""

import dataclasses
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import gin
from evaluation import compare, finetune, trials
from evaluation.compare import Trial
from fakes.convert_fakes import FAMILIES, write_run
from fakes.paths import MINI, ROOT
from fakes.refuses import refuses

TEXTS = ("ro_mini_span_corruption", "ro_mini_whole_words")


@pytest.fixture(autouse=True)
def forgotten_recipes():
    """Remove what a test's recipes bind."""
    yield
    gin.clear_config()


def result(*bits: float, text: str = "held out") -> dict:
    """Return what a seed measures on passages of 10 bytes each."""
    passages = [[10 * cost, 10] for cost in bits]
    return {"value": float(np.mean(bits)), "passages": passages, "text_sha256": text}


def test_passages_are_compared_in_pairs():
    """They differ much from each other, and little from text to text."""
    costs = np.array([1.0, 2.0, 5.0, 3.0])
    first, second = [result(*costs)] * 2, [result(*costs + [0.1, 0.11, 0.1, 0.09])] * 2
    better = compare.difference(first, second)
    assert better.value == pytest.approx(-0.1)
    assert better.by_passages < 0.01
    assert better.sentence("a", "b").startswith("a is better: -0.1000")
    worse = compare.difference(second, first)
    assert worse.sentence("a", "b").startswith("b is better: +0.1000")
    mixed = compare.difference(first, [result(*costs + [0.5, -0.4, 0.4, -0.3])] * 2)
    assert mixed.sentence("a", "b").startswith("no difference: ")


def test_one_seed_does_not_decide():
    """Two branches on the same text differ too, which one seed does not show."""
    one = compare.difference([result(1.0, 2.0)], [result(3.0, 4.0)])
    assert one.by_seeds is None
    assert one.sentence("a", "b").startswith("not decided: ")
    assert "--seeds 3" in one.sentence("a", "b")
    equal = compare.difference([result(1.0, 2.0)], [result(2.0, 1.0)])
    assert equal.sentence("a", "b").startswith("no difference: ")
    two = compare.difference([result(1.0, 2.0)] * 2, [result(3.0, 4.0)] * 2)
    assert two.sentence("a", "b").startswith("a is better: ")
    assert "--seeds" not in two.sentence("a", "b")


def test_seeds_that_scatter_make_a_difference_chance():
    """By the t of two groups of n: 4.303 and 2.776 at 2 and 4 degrees of freedom."""
    seeds = lambda *values: [result(value, value) for value in values]
    two = compare.difference(seeds(1.0, 1.2), seeds(1.5, 1.7))
    assert two.value == pytest.approx(-0.5)
    assert two.by_passages == pytest.approx(0)
    assert two.by_seeds == pytest.approx(4.303 * (0.02 + 0.02) ** 0.5 / 2**0.5)
    assert two.sentence("a", "b").startswith("no difference: ")
    three = compare.difference(seeds(1.0, 1.1, 1.2), seeds(1.5, 1.6, 1.7))
    assert three.by_seeds == pytest.approx(2.776 * (0.01 + 0.01) ** 0.5 / 3**0.5)
    assert three.sentence("a", "b").startswith("a is better: ")


@pytest.mark.parametrize("by_passage", [0.0, 0.05])
@pytest.mark.parametrize("seeds", [2, 3, 12])
def test_equal_texts_are_told_apart_in_at_most_one_of_twenty_cases(seeds, by_passage):
    """A text suits some passages more than others, by which it may look better too."""
    rng, cases = np.random.default_rng(0), 600

    def is_chance(difference: float) -> bool:
        """Compare texts whose seeds scatter by 0.01; passages vary by far more, alike for both."""
        passages = rng.normal(2.0, 0.5, 50)

        def runs(mean):
            of_text = passages + mean + rng.normal(0, by_passage, 50)
            noise = lambda: rng.normal(0, 0.01) + rng.normal(0, 1e-4, 50)
            return [result(*(of_text + noise())) for _ in range(seeds)]

        return "no difference" in compare.difference(runs(0.0), runs(difference)).sentence("a", "b")

    assert sum(not is_chance(0.0) for _ in range(cases)) <= 0.07 * cases
    assert sum(not is_chance(0.1) for _ in range(cases)) >= 0.9 * cases


@pytest.fixture
def run(tmp_path):
    """A run of the tiny recipe whose checkpoint nothing here opens."""
    (tmp_path / "run" / "checkpoint_7").mkdir(parents=True)
    recipe = "include 'gin/ro_t5x_tiny.gin'\nRANDOM_SEED = 5\n"
    (tmp_path / "run" / "config.gin").write_text(recipe)
    return tmp_path / "run"


@pytest.fixture
def said(monkeypatch):
    """Collect the commands that are started; an evaluation of seed s measures s of B, 2 s of A."""
    commands = []

    def start(words):
        commands.append(words)
        if words[0] == "evaluation":
            path = pathlib.Path(words[words.index("--out") + 1])
            text, _, seed = path.parent.name.rpartition("_")
            value = int(seed) * (1 + (text == TEXTS[0]))
            passages = [[10 * value, 10], [20 * value + 1, 20]] * 15
            measured = {"measures": {"bits_per_byte": [value, 0.1, 30]}, "passages": passages}
            models = [{"step": 9}, {"step": 11} | measured, {"step": None}]
            path.write_text(json.dumps({"settings": {"text_sha256": "x"}, "models": models}))

    monkeypatch.setattr(finetune, "run_command", start)
    return commands


def command(run, *flags, texts=TEXTS, steps=3):
    words = [*texts, "--at", f"{run}/checkpoint_7", "--steps", str(steps), "--language", "ro"]
    compare.main([*words, "--out", str(run.parent / "out"), *flags])


def test_each_seed_trains_both_texts_once(run, said, capsys):
    command(run, "--seeds", "2", "--gin.BATCH_SIZE=8")
    order = [words[0] for words in said]
    assert order == ["evaluation", *["t5x.train", "evaluation"] * 4, "report"]
    assert said[0][1] == f"{run}/checkpoint_7"  # so that a text that cannot be read is refused
    flags = [dict(word[6:].split("=", 1) for word in words[2:]) for words in said[1:9:2]]
    names = [f"'{text}'" for text in TEXTS]
    assert [f["MIXTURE_OR_TASK_NAME"] for f in flags] == names * 2
    assert [f["RANDOM_SEED"] for f in flags] == ["6", "6", "7", "7"]  # none is the run's
    for branch in flags:
        assert branch["COOLDOWN_FROM"] == f"'{run}/checkpoint_7'"
        assert branch["TRAIN_STEPS_RELATIVE"] == "3"
        assert branch["train_script.train.cooldown_restore_dataset"] == "False"
        assert branch["BATCH_SIZE"] == "8"
    assert len({f["MODEL_DIR"] for f in flags}) == 4
    assert said[1][1] == f"--gin_file={run.parent}/out/model.gin"
    assert (run.parent / "out" / "model.gin").read_text() == (run / "config.gin").read_text()
    assert said[-1][1:5] == [f["MODEL_DIR"].strip("'") for f in flags]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "checkpoint_7: 0.0000 bits a byte"
    assert printed[1] == f"{TEXTS[0]}: 3.0000 ± 1.4142 bits a byte"
    assert printed[2] == f"{TEXTS[1]}: 1.5000 ± 0.7071 bits a byte"
    assert printed[3].startswith("no difference: +1.5")


def test_the_same_command_resumes_and_more_seeds_are_added(run, said):
    command(run, "--seeds", "1")
    command(run, "--seeds", "1")
    command(run, "--seeds", "2")
    both = ["t5x.train", "evaluation"] * 2
    order = ["evaluation", *both, "report", "report", *both, "report"]
    assert [words[0] for words in said] == order
    out = run.parent / "out"
    branches = {Trial(text, seed) for text in TEXTS for seed in (1, 2)}
    results = trials.read(out / compare.RESULTS, Trial)
    assert {*results} == branches | {Trial("checkpoint_7", 0)}
    with refuses("--out", str(out)) as refusal:
        command(run, steps=2)
    assert "steps " in refusal.value.why


@pytest.mark.parametrize("flags", [(), ("--text", "held_out.jsonl")])
@pytest.mark.parametrize("count", [1, compare.FEWEST_PASSAGES - 1])
def test_a_text_of_few_passages_is_refused_before_training(run, said, flags, count, monkeypatch):
    """The error of one is 0. By that of ten, 8 % of equal texts would differ."""
    start = finetune.run_command

    def of_few_passages(words):
        start(words)
        path = pathlib.Path(words[words.index("--out") + 1])
        measured = json.loads(path.read_text())
        del measured["models"][-2]["passages"][count:]
        path.write_text(json.dumps(measured))

    monkeypatch.setattr(finetune, "run_command", of_few_passages)
    with refuses() as refusal:
        command(run, *flags)
    assert str(compare.FEWEST_PASSAGES) in refusal.value.why
    assert [words[0] for words in said] == ["evaluation"]


def test_a_dry_run_checks_both_and_trains_nothing(run, said):
    command(run, "--dry_run", "--seeds", "3")
    assert [words[-1] for words in said] == ["--dry_run"] * 2
    assert [words[0] for words in said] == ["t5x.train"] * 2
    assert not (run.parent / "out" / compare.RESULTS).exists()


REFUSED = {
    "equal texts": ({"texts": (TEXTS[0], TEXTS[0])}, "B"),
    "texts that share folders": ({"texts": ("cs:web", "cs_web")}, "B"),
    "an unknown text": ({"texts": (TEXTS[0], "no_such_task")}, "MIXTURE_OR_TASK_NAME"),
    "another vocabulary": (
        {"texts": (TEXTS[0], "ro_mini_byt5_span_corruption")},
        "task ro_mini_byt5_span_corruption",
    ),
    "a text for encoders": (
        {"texts": (TEXTS[0], "ro_mini_masked_lm")},
        "task ro_mini_masked_lm",
    ),
    "more steps than text": ({"steps": 300}, TEXTS[0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_sentence_before_anything_runs(name, run, said):
    arguments, setting = REFUSED[name]
    with refuses(setting):
        command(run, **arguments)
    assert not said
    assert not (run.parent / "out").exists()


@pytest.mark.parametrize("name", compare.OWN)
def test_what_a_branch_has_of_its_own_is_no_flag(name, run, said):
    """Another COOLDOWN_FROM, say, would be reported as the checkpoint of --at."""
    with refuses(f"--gin.{name}") as refusal:
        command(run, f"--gin.{name}=5")
    assert compare.OWN[name] in refusal.value.to_set
    assert not said


BOUND = {"mixture_or_task_name": repr(TEXTS[0]), "seed": "3"}


@pytest.mark.parametrize("name", BOUND)
@pytest.mark.parametrize("as_flag", [False, True])
def test_branches_that_would_read_the_same_are_refused(name, as_flag, run, said):
    """Their difference would be none, or by no seed."""
    setting = f"train/utils.DatasetConfig.{name}"
    flag = [f"--gin.{setting}={BOUND[name]}"] if as_flag else []
    if not as_flag:
        with (run / "config.gin").open("a") as file:
            file.write(f"from t5x import utils\n{setting} = {BOUND[name]}\n")
    with refuses(setting):
        command(run, *flag)
    assert not said


def test_steps_that_are_too_many_are_named_with_the_number_that_is_not(run, said):
    with refuses(TEXTS[0]) as refusal:
        command(run, steps=300)
    enough = int(refusal.value.to_set.split()[3].replace(",", ""))
    command(run, steps=enough)
    assert said


def test_a_checkpoint_must_exist_and_have_a_recipe(run, said):
    (run / "config.gin").unlink()
    with refuses(str(run)):
        command(run)
    (run / "checkpoint_7").rmdir()
    with refuses(f"{run}/checkpoint_7"):
        command(run)
    assert not said


def test_results_of_another_held_out_text_are_not_compared():
    results = {Trial(name, 1): result(1.0, 2.0) for name in ("start", "a", "b")}
    assert "no difference" in compare.report([*results], results)
    results[Trial("b", 1)] = result(1.0, 2.0, text="other")
    with refuses("--text"):
        compare.report([*results], results)


def test_only_the_last_checkpoint_of_a_branch_is_kept(tmp_path):
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    for step in (3, 20, 100):
        write_run(tmp_path / "run", sizes, step=step)
    compare.remove_points(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").glob("checkpoint_*")] == ["checkpoint_100"]


TASKS = """from tasks import corpora, vocabularies
from tasks.corpus.source import CorpusSource
for name in {names}:
    source = CorpusSource(f"{folder}/{{name}}")
    corpora.add(f"proof_{{name}}", source, vocabularies.ro_mini_model, cedilla=True)
"""
SMALL = (
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 18}",
    "--gin.network.T5Config.num_encoder_layers=2",
    "--gin.network.T5Config.num_decoder_layers=2",
    "--gin.utils.create_learning_rate_scheduler.warmup_steps=40",
    "--gin.train_script.train.train_eval_dataset_cfg=None",
    "--gin.train_script.train.run_eval_before_training=False",
    "--gin.utils.SaveCheckpointConfig.period=60",
    "--gin.TRAIN_STEPS=120",
    "--gin.EXPECTED_LOSS=None",
)


@pytest.mark.slow
def test_shuffled_words_lose_by_far_and_halves_of_a_corpus_do_not_differ(tmp_path):
    lines = (MINI / "train-00000-of-00004.jsonl").read_text().splitlines()
    sentences = [
        sentence
        for line in lines
        for sentence in re.split(r"(?<=[.!?]) ", json.loads(line)["text"])
        if 40 < len(sentence) < 80
    ][:24]
    rng = random.Random(0)
    texts = [" ".join(rng.choices(sentences, k=8)) for _ in range(900)]
    held_out, texts = texts[:100], texts[100:]
    words = [word for text in texts for word in text.split()]
    rng.shuffle(words)
    shuffled = [" ".join(words.pop() for _ in text.split()) for text in texts]
    corpora = {"text": texts, "shuffled": shuffled, "half_1": texts[::2], "half_2": texts[1::2]}
    for name, documents in [*corpora.items(), ("held_out", held_out)]:
        (tmp_path / name).mkdir()
        rows = (json.dumps({"text": text}) + "\n" for text in documents)
        (tmp_path / name / "train.jsonl").write_text("".join(rows))
    module = TASKS.format(names=[*corpora], folder=tmp_path)
    (tmp_path / "proof_tasks.py").write_text(module)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def start(command: str, *flags: str) -> str:
        words = [sys.executable, "-m", *shlex.split(command), *flags]
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    base = {"MODEL_DIR": str(tmp_path / "base"), "MIXTURE_OR_TASK_NAME": "proof_text"}
    base |= {"MIXTURE_OR_TASK_MODULE": "proof_tasks"}
    start("t5x.train --gin_file=gin/ro_t5x_tiny.gin", *finetune.gin_flags(**base), *SMALL)

    def compared(a: str, b: str, seeds: int) -> tuple[str, dict]:
        out = tmp_path / f"{a}_{b}"
        flags = f"--at {tmp_path}/base --steps 40 --language ro --passages 60 --max_chars 200"
        flags += f" --text {tmp_path}/held_out/train.jsonl --seeds {seeds} --out {out}"
        printed = start(f"evaluation.compare proof_{a} proof_{b} {flags}")
        page = (out / compare.PAGE).read_text()
        assert f"proof_{a}_{seeds}" in page
        assert f"proof_{b}_{seeds}" in page
        assert "bits_per_byte" in page
        return printed.splitlines()[-1], trials.read(out / compare.RESULTS, Trial)

    verdict, results = compared("text", "shuffled", 2)
    values = lambda text: [line["value"] for trial, line in results.items() if trial.text == text]
    assert verdict.startswith("proof_text is better: "), verdict
    text, shuffled_words = values("proof_text"), values("proof_shuffled")
    assert len({*text}) == len({*shuffled_words}) == 2  # a seed is another order
    assert np.mean(shuffled_words) - np.mean(text) > 5 * max(np.std(text), np.std(shuffled_words))
    verdict, _ = compared("half_1", "half_2", 3)
    assert verdict.startswith("no difference: "), verdict
