"""Upstream's own gin files, its includes included, parse and build here as they are."""

import inspect
import json
import os
import subprocess
import sys
import types

import jax.numpy as jnp
import pytest
from golden.recipe_facts import parameter_count

import gin
import t5x.eval
import t5x.infer
import t5x.precompile
import t5x.train
from fakes import valid_run
from fakes.paths import GOLDEN, ROOT
from t5x import gin_utils, train_state
from t5x.settings.configuration import current
from t5x.start.vocabulary import check_feature_lengths

FUNCTIONS = {
    "train": t5x.train.train,
    "evaluate": t5x.eval.evaluate,
    "infer": t5x.infer.infer,
    "precompile": t5x.precompile.precompile,
}
BASE = "t5x/examples/t5/t5_1_1/base.gin"
FINETUNE = "t5x/configs/runs/finetune.gin"
# What upstream's documentation asks a user to set.
GIVEN = {
    "MODEL_DIR": "runs/x",
    "MIXTURE_OR_TASK_NAME": "wmt_t2t_ende_v003",
    "MIXTURE_OR_TASK_MODULE": None,
    "TASK_FEATURE_LENGTHS": {"inputs": 32, "targets": 16},
    "TRAIN_STEPS": 10,
    "DROPOUT_RATE": 0.1,
    "INITIAL_CHECKPOINT_PATH": "checkpoint_3",
    "CHECKPOINT_PATH": "checkpoint_3",
    "EVAL_OUTPUT_DIR": "out",
    "INFER_OUTPUT_DIR": "out",
}
VOCABULARY = "data/ro_mini/ro_mini.model"
# docs/t5x_compatibility.md lists these with their reasons.
REFUSED = {
    "t5x/configs/runs/export.gin": r"no module 't5x\.export_lib'",
    "t5x/configs/runs/export_seqio.gin": r"no module 't5x\.export_lib'",
    "t5x/configs/runs/infer_from_tfexample_file.gin": r"has no 'create_task_from_tfexample_file'",
    "t5x/examples/t5/t5_1_1/examples/base_wmt_eval.gin": r"evaluate gets no partitioner",
}
STATEMENTS = json.loads((GOLDEN / "upstream_gin.json").read_text())
FILES = sorted(STATEMENTS)
MODELS = [file for file in FILES if file.count("/") == 4]
RUNS = [file for file in FILES if file not in MODELS and file not in REFUSED]
PARAMETERS = json.loads((GOLDEN / "upstream_names.json").read_text())["parameters"]


def line(statement: dict) -> str:
    """Return a statement as gin writes it."""
    if "include" in statement:
        return f"include '{statement['include']}'"
    if "import" in statement:
        parent, _, name = statement["import"].rpartition(".")
        text = f"from {parent} import {name}" if statement["from"] else f"import {parent}.{name}"
        text = text if parent else f"import {name}"
        return f"{text} as {statement['as']}" if statement["as"] else text
    scope, selector, argument, value = statement["bind"]
    name = f"{scope}/{selector}" if scope else selector
    return f"{name}.{argument} = {value}" if argument else f"{name} = {value}"


def main_of(file: str) -> str | None:
    """Return the function of `__main__` that a file or its includes set, None for a model file."""
    for statement in STATEMENTS[file]:
        if "include" in statement and (main := main_of(statement["include"])):
            return main
        selector = statement.get("bind", ("", ""))[1]
        if "_script." in selector and selector.rpartition(".")[2] in FUNCTIONS:
            return selector.rpartition(".")[2]
    return None


def tasks_of_t5() -> dict[str, types.ModuleType]:
    """Return empty modules in the place of t5's, which register tasks when they are imported."""
    modules = {name: types.ModuleType(name) for name in ("t5", "t5.data", "t5.data.mixtures")}
    modules["t5"].data = modules["t5.data"]
    modules["t5.data"].mixtures = modules["t5.data.mixtures"]
    for module in modules.values():
        module.__path__ = []
        assert module.__name__ not in sys.modules
    return modules


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with all of upstream's files."""
    written = tmp_path_factory.mktemp("upstream")
    for file, statements in STATEMENTS.items():
        (written / file).parent.mkdir(parents=True, exist_ok=True)
        (written / file).write_text("".join(f"{line(statement)}\n" for statement in statements))
    return written


@pytest.fixture(autouse=True)
def main(monkeypatch, folder):
    """A `__main__` in that folder, gin cleared, and stand-ins of t5's modules."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    for name, stand_in in tasks_of_t5().items():
        monkeypatch.setitem(sys.modules, name, stand_in)
    monkeypatch.chdir(folder)
    with valid_run.gin_apart():
        yield module


def chain(file):
    """Return the files to parse: a run file follows a model file."""
    if file.endswith("local_tiny.gin"):
        return [BASE, FINETUNE, file]
    return [BASE, file] if file.startswith("t5x/configs") else [file]


def arguments_of(file, main, *bindings):
    """Parse a file with what upstream asks a user to set; return what its function gets."""
    name = main_of(file)
    function = lambda **arguments: arguments
    function.__name__ = function.__qualname__ = name
    function.__module__ = "__main__"
    function.__signature__ = inspect.signature(FUNCTIONS[name])
    setattr(main, name, function)
    gin_utils.parse_gin_flags([], chain(file), [], finalize_config=False)
    macros = [f"{macro} = {GIVEN[macro]!r}" for macro in current().missing()]
    gin_utils.parse_gin_flags([], [], [*macros, *bindings])
    return gin.get_configurable(function)()


def model_of(file):
    gin_utils.parse_gin_flags([], [file], ["DROPOUT_RATE = 0.1"], finalize_config=False)
    with gin.config_scope("MODEL"):
        return gin.get_configurable("gin.macro")()


def test_all_files_of_upstream_are_here():
    assert len(FILES) == len(MODELS) + len(RUNS) + len(REFUSED) == 48
    assert set(MODELS) == set(PARAMETERS)


@pytest.mark.parametrize("file", MODELS)
def test_a_model_has_the_size_that_it_has_upstream(file):
    assert parameter_count(model_of(file)) == PARAMETERS[file]


@pytest.mark.parametrize("file", MODELS)
def test_a_model_file_of_this_repository_has_the_size_of_upstreams(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    here = parameter_count(model_of(file))
    if file.endswith("/tiny.gin"):  # upstream's are too small to learn, all with T5's vocabulary
        assert here > PARAMETERS[file]
    else:
        assert here == PARAMETERS[file]


@pytest.mark.parametrize("file", RUNS)
def test_a_run_file_builds_what_its_function_gets(file, main):
    is_precompile = file.endswith("precompile.gin")
    backend = ["partitioning.PjitPartitioner.backend = None"]  # 'tpu' there
    run = arguments_of(file, main, *backend * is_precompile)
    cfg = run["train_dataset_cfg"] if "train_dataset_cfg" in run else run["dataset_cfg"]
    if not cfg.task_feature_lengths:
        cfg.task_feature_lengths = GIVEN["TASK_FEATURE_LENGTHS"]
    check_feature_lengths(cfg)
    specs = train_state.state_specs(run["model"], run["partitioner"])
    assert run["partitioner"].mesh.size == 8
    if "trainer_cls" in run:
        trainer = run["trainer_cls"](run["model"], None, run["partitioner"], specs, None)
        trainer.check_batch(cfg.batch_size)
        assert trainer.learning_rate_fn(jnp.int32(1)) >= 0


@pytest.mark.parametrize("file", REFUSED)
def test_a_file_that_is_left_out_is_refused_by_name(file, main):
    with pytest.raises(ValueError, match=REFUSED[file]) as caught:
        arguments_of(file, main) if main_of(file) else model_of(file)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_trainer_runs_on_upstreams_files(folder, tmp_path):
    """Only task and vocabulary are ours, since theirs are downloaded; ours has fewer ids."""
    bindings = {
        "MODEL_DIR": f"{tmp_path}/run",
        "MIXTURE_OR_TASK_MODULE": "tasks.romanian",
        "MIXTURE_OR_TASK_NAME": "ro_mini_span_corruption",
        "seqio.SentencePieceVocabulary.sentencepiece_model_file": f"{ROOT}/{VOCABULARY}",
        "seqio.SentencePieceVocabulary.extra_ids": 0,
        "partitioning.PjitPartitioner.num_partitions": 1,
    }
    file = "t5x/examples/t5/t5_1_1/examples/test_train_t5_tiny.gin"
    flags = [f"--gin.{name}={value!r}" for name, value in bindings.items()]
    command = [sys.executable, "-m", "t5x.train", f"--gin_file={file}", *flags]
    command.append("--allow_unpublishable")
    path = os.environ["PATH"]
    env = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PATH": path, "HOME": str(tmp_path)}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "step 3/3" in done.stderr
    assert (tmp_path / "run/checkpoint_3").is_dir()
