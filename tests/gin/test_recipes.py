"""Every gin file parses, builds its objects, and binds only names that upstream T5X has too."""

import importlib
import inspect
import json
import re
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest
import seqio
import tensorflow as tf
from golden import recipe_facts

import gin
from fakes import valid_run
from fakes.paths import GOLDEN, ROOT, is_shipped
from gin import config_parser
from t5x import gin_utils, infer, schedules

# Upstream has no encoders, nor our optimizers: those are in test_encoder_files.py and
# test_optimizer_files.py.
RECIPES = recipe_facts.recipes()
T5_FILES = [ROOT / f"gin/{name}.gin" for name in RECIPES]
PRETRAINS = [r for r in RECIPES if "runs/pretrain.gin" in (ROOT / f"gin/{r}.gin").read_text()]
RUNS = ("pretrain", "finetune", "eval", "infer")

UPSTREAM_NAMES = json.loads((GOLDEN / "upstream_names.json").read_text())
# Arguments that upstream T5X knows, by the last part of a configurable's name.
UPSTREAM = {k: v for module in UPSTREAM_NAMES["names"].values() for k, v in module.items()}

# Ours beside them, bound in t5x/ alone: upstream's checkout has run files of its own.
OURS = {
    "train": "watch cooldown_from",
    "precompile": "trainer_cls use_hardware_rng train_eval_dataset_cfg relative_steps "
    "cooldown_from",
    "SaveCheckpointConfig": "keep_best metric mode",
    "T5Config": "own_relative_bias",
    "one_token": "ids",
    "Watch": "writers infill_sentences infill_period expected_loss expected_loss_task",
}

# Parameters of models that upstream has no file of, and of our tiny ones.
PARAMETERS = {
    "t5_1_0": {"xl": 2_851_598_336, "xxl": 11_307_321_344, "tiny": 5_426_176},
    "t5_1_1": {"tiny": 9_800_704},
    "mt5": {"tiny": 65_604_608},
    "byt5": {"tiny": 1_674_240},
    "umt5": {"small": 306_601_984, "base": 592_043_520, "xl": 3_768_356_864}
    | {"xxl": 12_972_531_712},
}


def gin_files():
    paths = [*T5_FILES, *(ROOT / "gin/shared").glob("*.gin"), *(ROOT / "t5x").rglob("*.gin")]
    ours = [ROOT / folder for folder in recipe_facts.NETWORKS]
    paths = [path for path in paths if not any(map(path.is_relative_to, ours))]
    return [*filter(is_shipped, paths)]


@pytest.fixture(scope="module", autouse=True)
def vocabularies_found():
    """Find the vocabularies from the repository's folder, since a task keeps the first path."""
    for module in ("romanian", "jobs.classification", "jobs.diacritics", "jobs.summarization"):
        importlib.import_module(f"tasks.{module}")
    for name in seqio.TaskRegistry.names():
        for feature in seqio.TaskRegistry.get(name).output_features.values():
            getattr(feature.vocabulary, "sentencepiece_model_file", None)


@pytest.fixture(autouse=True)
def mains(monkeypatch, tmp_path):
    """A `__main__` with the three main functions and upstream's arguments, in another folder."""
    main = types.ModuleType("__main__")
    for name in ("train", "evaluate", "infer"):
        parameters = [
            inspect.Parameter(argument, inspect.Parameter.KEYWORD_ONLY, default=None)
            for argument in [*UPSTREAM[name], *OURS.get(name, "").split()]
        ]
        function = lambda **arguments: arguments
        function.__name__ = function.__qualname__ = name
        function.__signature__ = inspect.Signature(parameters)
        setattr(main, name, function)
    main.write_inferences_to_file = infer.write_inferences_to_file
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)
    with valid_run.gin_apart():
        yield main


def macro(name):
    with gin.config_scope(name):
        return gin.get_configurable("gin.macro")()


class Names(config_parser.ParserDelegate):
    """Return references and macros as their names."""

    def configurable_reference(self, scoped_configurable_name, evaluate):
        return scoped_configurable_name

    def macro(self, macro_name):
        return macro_name


@pytest.mark.parametrize("path", gin_files(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_only_names_of_upstream_are_bound(path):
    for statement in config_parser.ConfigParser(path.read_text(), Names()):
        if not isinstance(statement, config_parser.BindingStatement) or not statement.arg_name:
            continue
        module, _, name = statement.selector.rpartition(".")
        if module == "seqio":
            parameters = inspect.signature(getattr(seqio, name)).parameters
        elif module.startswith("tasks"):
            continue  # they are ours with either trainer
        else:
            parameters = [*UPSTREAM.get(name, ())]
            if path.is_relative_to(ROOT / "t5x"):
                parameters += OURS.get(name, "").split()
        assert statement.arg_name in parameters, f"{statement.selector}.{statement.arg_name}"


@pytest.mark.parametrize(
    ("family", "size"), [(f, s) for f, sizes in PARAMETERS.items() for s in sizes]
)
def test_a_model_has_its_number_of_parameters(family, size):
    path = f"t5x/examples/t5/{family}/{size}.gin"
    gin_utils.parse_gin_flags([], [path], ["DROPOUT_RATE = 0.25"], finalize_config=False)
    model = macro("MODEL")
    assert model.module.config.dropout_rate == 0.25
    assert recipe_facts.parameter_count(model) == PARAMETERS[family][size]


def test_every_model_file_is_counted():
    paths = filter(is_shipped, ROOT.glob("t5x/examples/t5/*/*.gin"))
    files = {str(path.relative_to(ROOT)) for path in paths}
    here = {f"t5x/examples/t5/{f}/{s}.gin" for f, sizes in PARAMETERS.items() for s in sizes}
    assert files == here | UPSTREAM_NAMES["parameters"].keys()


@pytest.mark.parametrize("run", RUNS)
def test_a_run_file_binds_all_required_arguments(run, mains):
    """Missing bindings are reported; with them the function receives objects, not references."""
    files = ["t5x/examples/t5/byt5/tiny.gin", f"t5x/configs/runs/{run}.gin"]
    main = {"eval": mains.evaluate, "infer": mains.infer}.get(run, mains.train)
    with pytest.raises(ValueError, match=r"not set") as caught:
        gin_utils.parse_gin_flags([], files, [])
    lacking = re.match(r"(.*?) (?:is|are) not set", str(caught.value))[1].split(", ")
    assert "MODEL" not in lacking

    gin.clear_config()
    typed = {"DROPOUT_RATE": 0.0, "TRAIN_STEPS": 10, "TASK_FEATURE_LENGTHS": {"inputs": 8}}
    bindings = [f"{name} = {typed.get(name, 'given')!r}" for name in lacking]
    gin_utils.parse_gin_flags([], files, bindings)
    arguments = gin.get_configurable(main)()
    assert arguments["model"].module.config.vocab_size == 384
    assert arguments["partitioner"].num_partitions == 1
    folder = {"eval": "output_dir", "infer": "output_dir"}.get(run, "model_dir")
    assert arguments[folder] == "given"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_fits_its_task_and_parses_to_itself(name, mains, tmp_path):
    gin_utils.parse_gin_flags([], [f"gin/{name}.gin"], ["MODEL_DIR = 'runs/x'"])
    run = gin.get_configurable(mains.train)()
    gin_utils.summarize_gin_config(str(tmp_path), None, 0)
    saved = (tmp_path / "config.gin").read_text()
    gin.clear_config()
    gin_utils.parse_gin_flags([], [str(tmp_path / "config.gin")], [])
    assert gin.config_str() == saved

    periods = run["checkpoint_cfg"].save.period, run["eval_period"]
    assert max(periods) % min(periods) == 0  # as upstream requires
    task = seqio.get_mixture_or_task(run["train_dataset_cfg"].mixture_or_task_name)
    ours, theirs = run["model"].input_vocabulary, task.output_features["inputs"].vocabulary
    if isinstance(ours, seqio.ByteVocabulary):
        assert ours == theirs
    else:
        assert theirs.sentencepiece_model_file.endswith(ours.sentencepiece_model_file)
    (lengths_fit if name in PRETRAINS else measured_on_validation)(run, task)


def lengths_fit(run, task):
    lengths = run["train_dataset_cfg"].task_feature_lengths
    if "prefix_lm" in task.name:  # either part may be all
        assert lengths["inputs"] == lengths["targets"]
        return
    table = json.loads((GOLDEN / "span_lengths.json").read_text())
    fills = {
        row["inputs_length"]: row["targets_length"]
        for row in table
        if (row["noise_density"], row["mean_noise_span_length"]) == (0.15, 3.0)
    }
    assert fills[lengths["inputs"]] == lengths["targets"]


def measured_on_validation(run, task):
    assert task.metric_fns
    assert run["infer_eval_dataset_cfg"].split == "validation"
    assert {"train", "validation"} <= set(task.splits)
    save, restore = run["checkpoint_cfg"].save, run["checkpoint_cfg"].restore
    assert save.keep_best == 1
    assert save.metric.startswith(f"inference_eval/{task.name}/")
    assert save.period % run["eval_period"] == 0  # it is measured where it is saved
    if restore.path:  # TRAIN_STEPS counts pretraining's too
        begin = int(restore.path.rpartition("_")[2])
        assert begin < run["total_steps"] <= begin + 50_000


def rate_of(run):
    """Return the learning rate schedule of a run's trainer."""
    return run["trainer_cls"](run["model"], None, None, None, None).learning_rate_fn


def test_a_schedule_of_the_table_lasts_as_long_as_the_run(mains, caplog):
    text = (ROOT / "docs/settings.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| another schedule |")]
    bound = dict(pair.split(" = ") for pair in re.findall(r"`(\w+ = [^`]+)`", row))
    assert set(bound) == {"factors", "base_learning_rate"}
    bound |= {"warmup_steps": 10_000, "steps_per_cycle": 490_000}
    flags = [f"utils.create_learning_rate_scheduler.{k} = {v}" for k, v in bound.items()]
    flags += ["TRAIN_STEPS = 500000", "MODEL_DIR = 'runs/x'"]
    gin_utils.parse_gin_flags([], ["gin/ro_t5x_base.gin"], flags)
    rate = rate_of(gin.get_configurable(mains.train)())
    rates = [float(rate(step)) for step in (5_000, 10_000, 255_000, 499_999)]
    assert rates == pytest.approx([0.005, 0.01, 0.005, 0], abs=1e-6)
    schedules.check_start(rate, 0, 500_000)
    assert not caplog.records


def test_a_fine_tune_and_the_eval_file_measure_the_best_checkpoint_on_the_test_split(mains):
    del mains.train
    files = ["gin/quality_base.gin", "t5x/configs/runs/eval.gin"]
    flags = ["CHECKPOINT_PATH = 'runs/x'", "EVAL_OUTPUT_DIR = 'out'"]
    gin_utils.parse_gin_flags([], files, [*flags, "utils.RestoreCheckpointConfig.mode = 'best'"])
    del mains.infer
    run = gin.get_configurable(mains.evaluate)()
    restore, cfg = run["restore_checkpoint_cfg"], run["dataset_cfg"]
    assert (restore.mode, restore.path) == ("best", "runs/x")
    assert (cfg.mixture_or_task_name, cfg.split) == ("quality", "test")
    assert cfg.task_feature_lengths is None
    assert run["model"].decode_fn.__qualname__.startswith("one_token")


@pytest.mark.parametrize("model", ["t5/t5_1_1", "t5/byt5", "t5gemma2"])
def test_flags_of_the_usual_functions_of_inference_reach_them(model, mains, tmp_path):
    """Gin sets only what a configuration refers to, and is silent about the rest."""
    files = [f"t5x/examples/{model}/tiny.gin", "t5x/configs/runs/infer.gin"]
    flags = ["MIXTURE_OR_TASK_NAME = 'x'", "TASK_FEATURE_LENGTHS = None", "CHECKPOINT_PATH = 'x'"]
    flags += [
        "INFER_OUTPUT_DIR = 'x'",
        "seqio.SentencePieceVocabulary.sentencepiece_model_file = ''",
    ]
    flags += ["decoding.beam_search.alpha = 0.0"]
    flags += ["infer_script.write_inferences_to_file.output_ids = True"]
    gin_utils.parse_gin_flags([], files, flags)
    del mains.train, mains.evaluate
    run = gin.get_configurable(mains.infer)()
    constant = lambda state: (jnp.log(jnp.array([[0.25, 0.25, 0.5]])), state.cache)
    _, scores = run["model"].decode_fn(
        inputs=jnp.zeros((1, 3), jnp.int32),
        cache={},
        tokens_to_logits=constant,
        eos_id=9,
        num_decodes=1,
    )
    assert scores.item() == pytest.approx(3 * np.log(0.5)), "not divided by the length"
    examples = tf.data.Dataset.from_tensors({"inputs_pretokenized": "un"})
    run["write_fn"](
        f"{tmp_path}/x", [np.array([5, 1])], examples, "predict", seqio.ByteVocabulary()
    )
    assert json.loads((tmp_path / "x").read_text())["prediction_tokens"] == [5, 1]
