"""The commands of README and docs run, page by page, in order, in a fresh copy of the repository.

Each command is run as it is typed, but for what `CHANGES` says: flags that make it small, or text
that names what a test does not have. `ELSEWHERE` has those that cannot run here, with the reason.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from convert.sizes import T5Sizes
from fakes import published, small_vocabulary
from fakes.clone import Clone
from fakes.loopback_hub import LoopbackHub
from fakes.pages import PAGES, blocks, commands, section
from fakes.paths import MINI, ROOT

SET_UP = "tests/launch/test_setup.py installs from a local index"
TPU = "tests/preflight compiles for TPUs, and tests/launch has a simulated pod"
ELSEWHERE = {
    r"launch/setup\.sh|pip install|pre-commit|git clone": SET_UP,
    r"launch/tpu\.py|launch/env\b|preflight\.sh ro_t5x_base": TPU,
    r"launch/quickstart\.sh$": "tests/launch/test_quickstart.py",
    r"tests/run\.sh": "it runs the tests, this one too",
    r"zensical": "tests/docs/test_site.py",
    r"tasks\.new_job": "tests/tasks/test_new_job.py, on rows of its own",
    r"launch/(train\.sh topic|finetune\.sh)": "they read SIB-200 of the hub: tests/tasks/languages",
    r"corpus HuggingFaceFW/": "it reads FineWeb-2 of the hub: tests/vocabulary",
    r"finetune_encoder": "tests/docs/test_finetune_encoder.py, on generated data",
    r"optimum|ct2-": "they need packages that nothing else does",
    r"s3://|s3fs|~/bucket": "tests/convert/test_bucket_upload.py; nothing mounts a bucket here",
    r"train\.sh summarize_base$": "it reads a data set of the hub",
    r"benchmarks\.contest": "tests/benchmarks/test_contest.py, on novels of its own",
    r"launch/upstream\.sh|T5X_DIR=|gs://t5-data": "upstream is not on a package index",
}


class Change(NamedTuple):
    """What is done to commands that match `pattern`."""

    pattern: str
    flags: str = ""  # appended
    instead: tuple[tuple[str, str], ...] = ()  # typed, run


SHORT = "--gin.BATCH_SIZE=4 --gin.EVAL_STEPS=1"
VOCABULARY = "--gin.seqio.SentencePieceVocabulary.sentencepiece_model_file"
SMALL_T5 = (
    "--gin_file=gin/shared/tiny.gin --gin.BATCH_SIZE=4 --gin.network.T5Config.vocab_size=400 "
    f"{VOCABULARY}=\"'google-t5/t5-base/spiece.model'\" "
    "--gin.tasks.vocabularies.t5_model.path=\"'google-t5/t5-base/spiece.model'\" "
    "--gin.TASK_FEATURE_LENGTHS=\"{'inputs': 64, 'targets': 2}\""
)
TRAIN_T5 = (
    "--gin.EVAL_STEPS=1 --gin.EVAL_PERIOD=2 "
    "--gin.INITIAL_CHECKPOINT_PATH=\"'runs/t5_base/checkpoint_1001896'\""
)
MINI_TASK = (
    "--dry_run --gin.MIXTURE_OR_TASK_NAME=\"'ro_mini_span_corruption'\" "
    "--gin.VOCABULARY_FILE=\"'data/ro_mini/ro_mini.model'\" --gin.network.T5Config.vocab_size=2048"
)
CHANGES = (
    Change("vocabulary.(train|check) ", instead=(("64000", "512"),)),
    Change("my_bert", instead=(("32000", "1024"),)),
    Change(
        r"^bash launch/ro_bert_tiny\.sh",
        f"{SHORT} --gin.TRAIN_STEPS=2 --gin.utils.SaveCheckpointConfig.period=2 "
        "--gin.utils.create_learning_rate_scheduler.warmup_steps=1",
    ),
    Change("vocabulary.trim", instead=(("32000", "384"),)),
    Change("train.sh my_t5x_base$", f"--gin_file=gin/shared/tiny.gin {SHORT} --gin.TRAIN_STEPS=2"),
    Change(r"ro_t5x_tiny\.sh", "--gin.TASK_FEATURE_LENGTHS=\"{'inputs': 64, 'targets': 18}\""),
    Change(r"ro_t5x_tiny\.sh", f"{SHORT} --gin.TRAIN_STEPS=20"),
    Change(r"train\.sh ro_diacritics_tiny", f"{SHORT} --gin.TRAIN_STEPS=24 --gin.EVAL_PERIOD=2"),
    Change(r"train\.sh ro_diacritics_tiny", "--gin.EVALUATOR_NUM_EXAMPLES=4"),
    Change(
        r"train\.sh ro_diacritics_tiny",
        "--gin.INITIAL_CHECKPOINT_PATH=\"'runs/ro_t5x_tiny/checkpoint_20'\"",
    ),
    Change(r"t5x\.infer", instead=(("checkpoint_300", "checkpoint_20"),)),
    Change(
        r"python -m evaluation ",
        "--text data/ro_mini/validation.jsonl --pairs pairs.jsonl --passages 6 --max_chars 400",
    ),
    Change(r"(train\.sh quality_base|quality_base\.gin)", SMALL_T5),
    Change(r"train\.sh quality_base", TRAIN_T5),
    Change("gpu_try", instead=(("/tmp/gpu_try", "gpu_try"),)),
    Change(r"benchmarks/step\.py", instead=(("t5_1_1/base --batch 64", "t5_1_1/tiny --batch 8"),)),
    Change(
        r"^(?!.*COOLDOWN).*ro_t5x_base(_day)?\.sh", MINI_TASK, (("gs://bucket/run", "runs/other"),)
    ),
    Change(
        "COOLDOWN_FROM",
        f"{SHORT} --gin.TASK_FEATURE_LENGTHS=\"{{'inputs': 64, 'targets': 18}}\"",
        (("ro_t5x_base", "ro_t5x_tiny"), ("450000", "20"), ("50000", "4")),
    ),
    Change(r"ro_t5x_base\.sh.*SEED", instead=(("num_partitions=4", "num_partitions=1"),)),
    Change("convert.sh ", instead=(("[MODEL_DIR or checkpoint] [flags]", "runs/ro_t5x_tiny"),)),
    Change(r"tasks\.cache", instead=(("gs://bucket/caches", "caches"),)),
    Change("'my_task'", "--gin_file=gin/shared/tiny.gin " + SHORT),
    Change("'my_task'", instead=(("2010000", "2000002"), ("vocab_size=64000", "vocab_size=400"))),
)


def changed(command: str) -> str:
    """Return a command as it is run."""
    typed_command = run_command = command.partition(" #")[0].strip()
    for change in CHANGES:
        if re.search(change.pattern, typed_command):
            for typed, run in change.instead:
                run_command = run_command.replace(typed, run)
            run_command += " " + change.flags
    return run_command


def reason(command: str) -> str | None:
    """Return why a command is not run here, or None."""
    command = command.partition(" #")[0].strip()
    return next((why for pattern, why in ELSEWHERE.items() if re.search(pattern, command)), None)


class Folder(Clone):
    """A fresh copy of the repository, with a local hub."""

    def publish(self, name: str, **sizes) -> None:
        """Write a random model where the hub's name is also the name of a folder."""
        folder = self.root / name
        folder.mkdir(parents=True)
        classes = {"vocab_size": 300, "user_defined_symbols": ["▁none", "▁low", "▁high"]}
        model = small_vocabulary.train(folder, **classes)
        Path(model).rename(folder / "spiece.model")
        narrow = {"emb_dim": 128, "num_heads": 4, "head_dim": 32, "mlp_dim": 256}
        layers = {"num_encoder_layers": 4, "num_decoder_layers": 4}
        published.publish(folder, T5Sizes(400, **narrow, **layers, **sizes))


def a_language(folder: Folder) -> None:
    """Take the README's steps 1 to 3, whose text says what is changed in the recipe."""
    steps = section("README.md", "From your corpus to your model in five steps")
    (module,) = [block.text for block in blocks(steps) if block.language == "python"]
    folder.write("tasks/my_language.py", module)
    recipe = (ROOT / "gin/ro_t5x_base.gin").read_text()
    for before, after in (
        ("import tasks.romanian", "import tasks.my_language"),
        ("'ro_span_corruption'", "'my_corpus'"),
        ("vocabularies/ro_64000.model", "vocabularies/my.model"),
        ("vocab_size = 64000", "vocab_size = 512"),
        ("num_partitions = 2", "num_partitions = 1"),
    ):
        assert before in recipe
        recipe = recipe.replace(before, after)
    folder.write("gin/my_t5x_base.gin", recipe)


def a_vocabulary_too(folder: Folder) -> None:
    a_language(folder)
    for command in commands((ROOT / "docs/vocabulary.md").read_text())[:1]:
        folder.run(changed(command))


def the_tiny_run(folder: Folder) -> None:
    folder.run(changed("bash launch/ro_t5x_tiny.sh"))


def tiny_runs_and_a_model(folder: Folder) -> None:
    the_tiny_run(folder)
    folder.run(changed("bash convert/convert.sh runs/ro_t5x_tiny"))
    folder.run(f"bash launch/ro_simple_tiny.sh {SHORT} --gin.TRAIN_STEPS=2")
    folder.run("bash convert/convert.sh runs/ro_simple_tiny")
    the_tiny_encoder(folder)
    folder.publish("google-t5/t5-base", mlp_activations=("relu",), logits_via_embedding=True)


def the_tiny_run_and_a_umt5(folder: Folder) -> None:
    the_tiny_run(folder)
    folder.publish("google/umt5-base", own_relative_bias=True)


def the_tiny_encoder(folder: Folder) -> None:
    folder.run(changed("bash launch/ro_bert_tiny.sh"))


def a_base_run(folder: Folder) -> None:
    folder.publish("google/t5-v1_1-base", mlp_activations=("gelu", "linear"))
    folder.run("python -m convert from_hf google/t5-v1_1-base runs/ro_t5x_base --step 2000000")


def models_to_compare(folder: Folder) -> None:
    a_base_run(folder)
    folder.write("pairs.jsonl", '{"good": "Ana are un măr .", "bad": "Ana au un măr ."}')
    folder.publish("google/mt5-small")
    folder.publish("google/umt5-small", own_relative_bias=True)


def checkpoints_and_questions(folder: Folder) -> None:
    the_tiny_run(folder)
    the_tiny_encoder(folder)
    folder.publish("google-t5/t5-base", mlp_activations=("relu",), logits_via_embedding=True)
    folder.run("python -m convert from_hf google-t5/t5-base runs/t5_base --step 1001896")
    a_base_run(folder)
    folder.write("vocabularies/ro_64000.model", "")
    model = folder.root / "google/t5-v1_1-base/spiece.model"
    shutil.copy(model, folder.root / "vocabularies/ro_64000.model")
    rows = [f"How {i}?,Why <b>{i}</b>?,{('HQ', 'LQ_EDIT', 'LQ_CLOSE')[i % 3]}" for i in range(90)]
    for name in ("train", "valid"):
        folder.write(f"data/quality/{name}.csv", "\n".join(["Title,Body,Y", *rows]))
    folder.write("pairs.tsv", "inputs\ttargets\n" + "unu doi trei\tunu\n" * 20)
    files = '{"train": "pairs.tsv", "validation": "pairs.tsv"}'
    folder.write(
        "tasks/my_task.py",
        "from tasks.jobs import summarization\nfrom tasks.rows import Rows\n"
        f"source = Rows(files={files}, columns=dict(inputs='inputs', targets='targets'))\n"
        "summarization.add('my_task', source, 'vocabularies/ro_64000.model', english=False)\n",
    )


def models_to_trim(folder: Folder) -> None:
    folder.publish("google/mt5-base")
    folder.write("words.txt", "pădurea\nfrunzelor\n")


def an_example(folder: Folder) -> None:
    for block in blocks(section("docs/extending.md", "A corpus")):
        name = block.text.splitlines()[0].removeprefix("# ")
        if name.endswith(".py"):
            folder.write(name, block.text)
    records = [{"title": "O zi", "body": f"Frunzele {i} cad pe pământ."} for i in range(40)]
    text = "".join(json.dumps(record) + "\n" for record in records)
    folder.write("my_texts/train-0.jsonl", text)
    folder.write("my_texts/validation-0.jsonl", text)


BEFORE: dict[str, Callable[[Folder], None]] = {
    "README.md": a_language,
    "conversion.md": tiny_runs_and_a_model,
    "evaluation.md": models_to_compare,
    "extending.md": an_example,
    "fine_tuning.md": checkpoints_and_questions,
    "inference.md": the_tiny_run,
    "settings.md": the_tiny_run,
    "t5x_compatibility.md": the_tiny_run_and_a_umt5,
    "vocabulary.md": models_to_trim,
    "your_language.md": a_vocabulary_too,
}
# Commands in the sentences of the README's steps 4 and 5.
README_ENDS = ["bash launch/train.sh my_t5x_base", "bash convert/convert.sh runs/my_t5x_base"]


def steps(page: Path) -> list[str]:
    """Return the commands of a page that are run here."""
    text = page.read_text()
    lines = commands(text)
    if page.name == "README.md" and page.parent == ROOT:
        assert all(f"`{command}`" in text for command in README_ENDS)
        lines += README_ENDS
    return [command for command in lines if not reason(command) and command[:6] != "source"]


STEPS = {str(page.relative_to(ROOT)): lines for page in PAGES if (lines := steps(page))}


def test_the_steps_are_found_and_no_change_or_reason_is_out_of_date():
    assert STEPS
    for change in CHANGES:
        matches = [c for page in STEPS.values() for c in page if re.search(change.pattern, c)]
        assert matches, change
        assert all(any(typed in command for command in matches) for typed, _ in change.instead)
    typed = [c.partition(" #")[0].strip() for page in PAGES for c in commands(page.read_text())]
    for pattern in ELSEWHERE:
        assert any(re.search(pattern, command) for command in typed), pattern


@pytest.mark.slow
@pytest.mark.parametrize("page", STEPS)
def test_the_steps_of_a_page_run_in_order(page, tmp_path):
    texts = [path.read_bytes() for path in sorted(MINI.glob("*.jsonl"))]
    names = [path.name for path in sorted(MINI.glob("*.jsonl"))]
    hub = LoopbackHub({"user/name": dict(zip(names, texts, strict=True))})
    try:
        folder = Folder(tmp_path / "clone", hub)
        BEFORE.get(Path(page).name, lambda _: None)(folder)
        for command in STEPS[page]:
            print("RUN", changed(command), flush=True)
            folder.run(changed(command))
    finally:
        hub.close()
