"""Every gin file parses, builds its objects, and binds only names that upstream T5X has too."""

import importlib
import inspect
import json
import re
import shlex
import sys
import types

import jax
import pytest
import seqio
from golden import recipe_facts

import gin
from fakes.pages import commands, section
from fakes.paths import ROOT
from gin import config_parser
from t5x import gin_utils, optimizers, schedules

# Upstream has no encoders, nor our optimizers: those are in test_encoder_files.py and
# test_optimizer_files.py.
RECIPES = recipe_facts.recipes()
T5_FILES = [ROOT / f"gin/{name}.gin" for name in RECIPES]
ALL_RECIPES = sorted(path.stem for path in (ROOT / "gin").glob("*.gin"))
PRETRAINS = [r for r in RECIPES if "runs/pretrain.gin" in (ROOT / f"gin/{r}.gin").read_text()]
FINETUNES = [r for r in RECIPES if r not in PRETRAINS]
RUNS = ("pretrain", "finetune", "eval", "infer")

# Arguments that upstream T5X knows, by the last part of a configurable's name.
UPSTREAM = {
    "train": "model train_dataset_cfg train_eval_dataset_cfg infer_eval_dataset_cfg checkpoint_cfg "
    "partitioner trainer_cls model_dir total_steps relative_steps eval_steps eval_period "
    "stats_period random_seed use_hardware_rng summarize_config_fn inference_evaluator_cls "
    "get_dataset_fn concurrent_metrics actions train_eval_get_dataset_fn run_eval_before_training "
    "verify_matching_vocabs_fn gc_period",
    "evaluate": "model dataset_cfg restore_checkpoint_cfg partitioner output_dir "
    "inference_evaluator_cls summarize_config_fn fallback_init_rng",
    "infer": "mode model dataset_cfg restore_checkpoint_cfg partitioner output_dir "
    "checkpoint_period shard_id num_shards merge_chunked_results write_fn checkpoint_ds_iter",
    # trainer_cls is ours: the run's own trainer is compiled.
    "precompile": "model train_dataset_cfg partitioner model_dir random_seed get_dataset_fn "
    "trainer_cls",
    "DatasetConfig": "mixture_or_task_name task_feature_lengths split batch_size shuffle seed "
    "use_cached pack use_custom_packing_ops module use_memory_cache trim_output_features",
    "CheckpointConfig": "save restore",
    "SaveCheckpointConfig": "dtype period keep keep_dataset_checkpoints save_dataset "
    "checkpoint_steps checkpointer_cls state_transformation_fns",
    "RestoreCheckpointConfig": "path mode assignment_map strict fallback_to_scratch dtype "
    "restore_dataset is_tensorflow checkpointer_cls state_transformation_fns",
    "create_learning_rate_scheduler": "factors base_learning_rate warmup_steps decay_factor "
    "steps_per_decay steps_per_cycle step_offset min_learning_rate",
    "Trainer": "num_microbatches learning_rate_fn weight_metrics_computer",
    "PjitPartitioner": "num_partitions model_parallel_submesh params_on_devices backend "
    "logical_axis_rules use_cpu_pjit",
    "EncoderDecoderModel": "module input_vocabulary output_vocabulary optimizer_def decode_fn "
    "feature_converter_cls label_smoothing z_loss loss_normalizing_factor",
    "Adafactor": "learning_rate factored multiply_by_parameter_scale beta1 decay_rate step_offset "
    "clipping_threshold weight_decay_rate min_dim_size_to_factor epsilon1 epsilon2 "
    "dtype_momentum factor_map logical_factor_rules weight_decay_rate_lr_exponent "
    "global_norm_clip_threshold max_parameter_scale skip_nan_updates",
    "EarlyStoppingAction": "metric mode patience atol rtol",
    "Transformer": "config",
    "T5Config": "vocab_size dtype emb_dim num_heads num_encoder_layers num_decoder_layers head_dim "
    "mlp_dim mlp_activations dropout_rate logits_via_embedding float32_attention_logits",
}

# Ours beside them, bound in t5x/ alone: upstream's checkout has run files of its own.
OURS = {
    "train": "watch cooldown_from",
    "precompile": "use_hardware_rng train_eval_dataset_cfg relative_steps cooldown_from",
    "SaveCheckpointConfig": "keep_best metric mode",
    "T5Config": "own_relative_bias",
    "one_token": "ids",
    "Watch": "writers infill_sentences infill_period expected_loss expected_loss_task",
}

# Parameters of the published models (Raffel et al. 2020; Xue et al. 2021; Xue et al. 2022), of the
# configurations that Hugging Face publishes for them, and of our tiny ones.
PARAMETERS = {
    "t5_1_0": {"small": 60_506_624, "base": 222_903_552, "large": 737_668_096, "tiny": 5_426_176}
    | {"3B": 2_851_598_336, "xl": 2_851_598_336, "11B": 11_307_321_344, "xxl": 11_307_321_344},
    "t5_1_1": {"tiny": 9_800_704, "small": 76_961_152, "base": 247_577_856, "large": 783_150_080}
    | {"xl": 2_849_757_184, "xxl": 11_135_332_352},
    "mt5": {"tiny": 65_604_608, "small": 300_176_768, "base": 582_401_280, "large": 1_229_581_312}
    | {"xl": 3_742_619_648, "xxl": 12_921_057_280},
    "byt5": {"tiny": 1_674_240, "small": 299_637_760, "base": 581_653_248, "large": 1_228_183_552}
    | {"xl": 3_737_801_728, "xxl": 12_906_899_328},
    "umt5": {"small": 306_601_984, "base": 592_043_520, "xl": 3_768_356_864}
    | {"xxl": 12_972_531_712},
}

WEB, MT5 = "ro_span_corruption", "ro_mt5_span_corruption"
PUBLIC = "gs://t5-data/pretrained_models/t5x/mt5_{}/checkpoint_1000000"
COLUMNS = ("task", "path", "vocab", "emb", "partitions", "rate", "steps", "period", "keep")
EXPECTED = {
    "ro_t5x_base": (WEB, [], 64_000, 768, 2, 1.0, 2_000_000, 10_000, 5),
    "ro_t5x_large": (WEB, [], 64_000, 1024, 4, 1.0, 2_000_000, 10_000, 5),
    "ro_mt5x_base": (MT5, PUBLIC.format("base"), 250_112, 768, 2, 0.4, 2_000_000, 25_000, 3),
    "ro_mt5x_large": (MT5, PUBLIC.format("large"), 250_112, 1024, 2, 0.5, 1_500_000, 10_000, 3),
}


# What recipes include, and what is a flag beside them.
SHARED = {f"shared/{name}.gin" for name in ("run", "tiny", "downstream")} | {
    f"optimizers/{name}.gin" for name in ("adafactor", "adamw_scaled", "muon")
}


def gin_files():
    found = [*T5_FILES, *(ROOT / "gin/shared").glob("*.gin"), *(ROOT / "t5x").rglob("*.gin")]
    return [path for path in found if not path.is_relative_to(ROOT / recipe_facts.ENCODERS)]


@pytest.fixture(scope="module", autouse=True)
def vocabularies_found():
    """Find the vocabularies from the repository's folder, since a task keeps the first path."""
    for module in ("classification", "diacritics", "romanian", "summarization"):
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
            for argument in f"{UPSTREAM[name]} {OURS.get(name, '')}".split()
        ]
        function = lambda **arguments: arguments
        function.__name__ = function.__qualname__ = name
        function.__signature__ = inspect.Signature(parameters)
        setattr(main, name, function)
    monkeypatch.setitem(sys.modules, "__main__", main)
    for registry in ("_REGISTRY", "_INVERSE_REGISTRY"):
        monkeypatch.setattr(gin.config, registry, getattr(gin.config, registry).copy())
    for selector, _ in list(gin.config._REGISTRY.items()):
        if selector.split(".")[0] in ("train_script", "eval_script", "infer_script"):
            gin.config._REGISTRY.pop(selector)  # registered by another test
    monkeypatch.setattr(gin.config, "_IMPORTS", set())
    monkeypatch.chdir(tmp_path)
    gin.clear_config()
    yield main
    gin.clear_config()


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
            known = inspect.signature(getattr(seqio, name)).parameters
        elif module.startswith("tasks"):
            continue  # they are ours with either trainer
        else:
            known = UPSTREAM.get(name, "").split()
            if path.is_relative_to(ROOT / "t5x"):
                known += OURS.get(name, "").split()
        assert statement.arg_name in known, f"{statement.selector}.{statement.arg_name}"


def test_gin_holds_only_recipes():
    files = {p.relative_to(ROOT / "gin") for p in (ROOT / "gin").rglob("*") if p.is_file()}
    assert {path.suffix for path in files} == {".gin"}
    assert {str(path) for path in files if len(path.parts) > 1} == SHARED


@pytest.mark.parametrize("name", ALL_RECIPES)
def test_a_recipe_says_what_it_costs(name):
    lines = (ROOT / "gin" / f"{name}.gin").read_text().splitlines()
    head = " ".join(line for line in lines[:4] if line.startswith("#"))
    assert lines[0].startswith("# ")
    own = (ROOT / "launch" / f"{name}.sh").exists()
    assert f"Command: bash launch/{f'{name}.sh' if own else f'train.sh {name}'} " in f"{head} "
    assert re.search(r"[Cc]ost", head)
    assert re.search(r"[Ll]oss", head)


@pytest.mark.parametrize(
    ("family", "size"), [(f, s) for f, sizes in PARAMETERS.items() for s in sizes]
)
def test_a_model_has_its_published_number_of_parameters(family, size):
    path = f"t5x/examples/t5/{family}/{size}.gin"
    gin_utils.parse_gin_flags([], [path], ["DROPOUT_RATE = 0.25"], finalize_config=False)
    model = macro("MODEL")
    assert model.module.config.dropout_rate == 0.25
    shapes = {"encoder_input_tokens": (1, 4), "decoder_input_tokens": (1, 4)}
    variables = jax.eval_shape(
        lambda rng: model.get_initial_variables(rng, shapes), jax.random.key(0)
    )
    count = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
    assert count == PARAMETERS[family][size]


def test_every_model_file_is_counted():
    found = {(p.parent.name, p.stem) for p in (ROOT / "t5x/examples/t5").glob("*/*.gin")}
    assert found == {(family, size) for family, sizes in PARAMETERS.items() for size in sizes}


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


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recipe_has_its_documented_settings(name, mains):
    expected = dict(zip(COLUMNS, EXPECTED[name], strict=True))
    gin_utils.parse_gin_flags([], [f"gin/{name}.gin"], ["MODEL_DIR = 'runs/x'"])
    run = gin.get_configurable(mains.train)()
    config = run["model"].module.config
    data, save = run["train_dataset_cfg"], run["checkpoint_cfg"].save
    restore = run["checkpoint_cfg"].restore
    assert {
        "vocab": config.vocab_size,
        "emb": config.emb_dim,
        "partitions": run["partitioner"].num_partitions,
        "period": save.period,
        "keep": save.keep,
        "task": data.mixture_or_task_name,
        "steps": run["total_steps"],
        "path": restore.path,
        "rate": gin.query_parameter("utils.create_learning_rate_scheduler.base_learning_rate"),
    } == expected
    assert data.task_feature_lengths == {"inputs": 512, "targets": 114}
    assert (data.batch_size, config.dropout_rate) == (128, 0.0)
    assert (run["eval_steps"], run["eval_period"]) == (20, 1000)
    if restore.path:
        assert (restore.mode, restore.dtype) == ("specific", "float32")


@pytest.mark.parametrize("name", PRETRAINS)
def test_feature_lengths_are_those_that_spans_fill(name, mains):
    gin_utils.parse_gin_flags([], [f"gin/{name}.gin"], ["MODEL_DIR = 'runs/x'"])
    run = gin.get_configurable(mains.train)()
    lengths = run["train_dataset_cfg"].task_feature_lengths
    if "prefix_lm" in run["train_dataset_cfg"].mixture_or_task_name:  # either part may be all
        assert lengths["inputs"] == lengths["targets"]
        return
    table = json.loads((ROOT / "tests/golden/span_lengths.json").read_text())
    fills = {
        row["inputs_length"]: row["targets_length"]
        for row in table
        if (row["noise_density"], row["mean_noise_span_length"]) == (0.15, 3.0)
    }
    assert fills[lengths["inputs"]] == lengths["targets"]


@pytest.mark.parametrize("name", RECIPES)
def test_model_and_task_read_one_vocabulary(name, mains):
    gin_utils.parse_gin_flags([], [f"gin/{name}.gin"], ["MODEL_DIR = 'runs/x'"])
    run = gin.get_configurable(mains.train)()
    task = seqio.get_mixture_or_task(run["train_dataset_cfg"].mixture_or_task_name)
    own, theirs = run["model"].input_vocabulary, task.output_features["inputs"].vocabulary
    if isinstance(own, seqio.ByteVocabulary):
        assert own == theirs
    else:
        assert theirs.sentencepiece_model_file.endswith(own.sentencepiece_model_file)


@pytest.mark.parametrize("name", FINETUNES)
def test_a_fine_tune_is_measured_on_a_split_that_is_not_the_test_split(name, mains):
    gin_utils.parse_gin_flags([], [f"gin/{name}.gin"], ["MODEL_DIR = 'runs/x'"])
    run = gin.get_configurable(mains.train)()
    task = seqio.get_mixture_or_task(run["train_dataset_cfg"].mixture_or_task_name)
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


JOBS = {  # tokens of inputs and targets, learning rate
    "ro_diacritics_base": (256, 256, 1e-4),
    "quality_base": (512, 2, 1e-3),
    **dict.fromkeys(("summarize_small", "summarize_base", "summarize_large"), (512, 128, 1e-3)),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_fine_tune_has_its_documented_settings(name, mains):
    gin_utils.parse_gin_flags([], [f"gin/{name}.gin"], ["MODEL_DIR = 'runs/x'"])
    run = gin.get_configurable(mains.train)()
    lengths = run["train_dataset_cfg"].task_feature_lengths
    schedule = "utils.create_learning_rate_scheduler"
    rate = gin.query_parameter(f"{schedule}.base_learning_rate")
    assert (lengths["inputs"], lengths["targets"], rate) == JOBS[name]
    assert gin.query_parameter(f"{schedule}.factors") == "constant"
    assert type(run["model"].optimizer_def).__name__ == "Adafactor"
    assert run["model"].module.config.dtype == "bfloat16"


@pytest.mark.parametrize("name", ["ro_t5x_tiny", "ro_diacritics_tiny"])
def test_another_optimizer_is_a_flag(name, mains):
    flags = ["OPTIMIZER = @optimizers.adamw()", "optimizers.adamw.weight_decay = 0.25"]
    gin_utils.parse_gin_flags([], [f"gin/{name}.gin"], [*flags, "MODEL_DIR = 'runs/x'"])
    model = gin.get_configurable(mains.train)()["model"]
    assert isinstance(model.optimizer_def, optimizers.DecoupledOptimizer)
    assert model.optimizer_def.decay == 0.25


def rate_of(run):
    """Return the learning rate schedule of a run's trainer."""
    return run["trainer_cls"](run["model"], None, None, None, None).learning_rate_fn


def test_warm_up_and_decay_are_as_documented(mains, caplog):
    (command,) = commands(section("docs/fine_tuning.md", "Warm-up and decay"))
    model_dir, _, _, recipe, *words = shlex.split(command)
    flags = [word.removeprefix("--gin.").replace("=", " = ", 1) for word in words]
    model_dir = model_dir.removeprefix("MODEL_DIR=")
    gin_utils.parse_gin_flags([], [f"gin/{recipe}.gin"], [*flags, f"MODEL_DIR = '{model_dir}'"])
    run = gin.get_configurable(mains.train)()
    assert isinstance(run["model"].optimizer_def, optimizers.DecoupledOptimizer)
    start = int(run["checkpoint_cfg"].restore.path.rpartition("_")[2])
    rate, end = rate_of(run), run["total_steps"]
    assert (start, end) == (999_900, 1_001_900)
    expected = {0: 0, 100: 1.5e-4, 200: 3e-4, 1100: 1.5e-4, 1999: 3e-4 / 1800}
    for step, value in expected.items():
        assert float(rate(start + step)) == pytest.approx(value, rel=1e-4, abs=2e-8), step
    schedules.check_start(rate, start, end)
    assert not caplog.records


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
    found = [float(rate(step)) for step in (5_000, 10_000, 255_000, 499_999)]
    assert found == pytest.approx([0.005, 0.01, 0.005, 0], abs=1e-6)
    schedules.check_start(rate, 0, 500_000)
    assert not caplog.records


def test_early_stopping_is_a_few_flags_of_a_fine_tune(mains):
    flags = [
        "train_script.train.actions = {'INFER_EVAL': [@trainer.EarlyStoppingAction()]}",
        "trainer.EarlyStoppingAction.metric = ('quality', 'accuracy')",
        "trainer.EarlyStoppingAction.mode = 'max'",
        "MODEL_DIR = 'runs/x'",
    ]
    gin_utils.parse_gin_flags([], ["gin/quality_base.gin"], flags)
    ((action,),) = gin.get_configurable(mains.train)()["actions"].values()
    assert (tuple(action.metric), action.mode) == (("quality", "accuracy"), "max")


def test_a_fine_tune_and_the_eval_file_measure_the_best_checkpoint_on_the_test_split(mains):
    del mains.train
    files = ["gin/quality_base.gin", "t5x/configs/runs/eval.gin"]
    flags = ["CHECKPOINT_PATH = 'runs/x'", "EVAL_OUTPUT_DIR = 'out'"]
    gin_utils.parse_gin_flags([], files, [*flags, "utils.RestoreCheckpointConfig.mode = 'best'"])
    del mains.infer
    run = gin.get_configurable(mains.evaluate)()
    assert run["restore_checkpoint_cfg"].mode == "best"
    assert run["dataset_cfg"].split == "test"
    assert run["model"].decode_fn.__qualname__.startswith("one_token")


def test_the_tiny_recipe_is_tiny(mains):
    gin_utils.parse_gin_flags([], ["gin/ro_t5x_tiny.gin"], ["MODEL_DIR = 'runs/x'"])
    run = gin.get_configurable(mains.train)()
    shapes = {"encoder_input_tokens": (1, 4), "decoder_input_tokens": (1, 4)}
    initial = run["model"].get_initial_variables
    params = jax.eval_shape(lambda rng: initial(rng, shapes), jax.random.key(0))["params"]
    assert 1e6 < sum(leaf.size for leaf in jax.tree.leaves(params)) < 3e6
    assert run["model"].module.config.dtype == "float32"
    for name in ("train_dataset_cfg", "train_eval_dataset_cfg"):
        assert run[name].batch_size == macro("BATCH_SIZE")


@pytest.mark.parametrize("name", RECIPES)
def test_a_saved_recipe_parses_to_itself(name, tmp_path):
    gin_utils.parse_gin_flags([], [f"gin/{name}.gin"], ["MODEL_DIR = 'runs/x'"])
    gin_utils.summarize_gin_config(str(tmp_path), None, 0)
    saved = (tmp_path / "config.gin").read_text()
    gin.clear_config()
    gin_utils.parse_gin_flags([], [str(tmp_path / "config.gin")], [])
    assert gin.config_str() == saved


def test_a_recipe_and_the_eval_file_make_an_evaluation(mains):
    """The recipe binds the model and the task, the eval file everything else."""
    del mains.train
    gin_utils.parse_gin_flags(
        [],
        ["gin/ro_t5x_tiny.gin", "t5x/configs/runs/eval.gin"],
        ["CHECKPOINT_PATH = 'runs/x'", "EVAL_OUTPUT_DIR = 'out'"],
    )
    del mains.infer
    run = gin.get_configurable(mains.evaluate)()
    assert run["restore_checkpoint_cfg"].path == "runs/x"
    assert run["dataset_cfg"].mixture_or_task_name == "ro_mini_span_corruption"
    assert run["dataset_cfg"].task_feature_lengths is None
