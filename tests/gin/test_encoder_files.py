"""The gin files of encoders make the networks that transformers has."""

import dataclasses
import json
import sys
import types

import jax
import numpy as np
import pytest
import seqio
import torch
import transformers
from golden import recipe_facts

import gin
from convert.sizes import BertSizes, ModernBertSizes
from fakes import valid_run
from fakes.paths import ROOT, is_shipped
from t5x import gin_utils, metrics
from t5x.optimizers import DecoupledOptimizer
from t5x.partitioning import PjitPartitioner
from t5x.start import cooldown
from t5x.train import train
from tasks.objectives.registry import objective_of

pytestmark = pytest.mark.usefixtures("gin_apart")
FAMILIES = ("bert", "roberta", "modernbert")
PATHS = filter(is_shipped, ROOT.glob("t5x/examples/encoder/*/*.gin"))
FILES = sorted((path.parent.name, path.stem) for path in PATHS)


def macro(name):
    with gin.config_scope(name):
        return gin.get_configurable("gin.macro")()


def model_of(family, size):
    path = f"t5x/examples/encoder/{family}/{size}.gin"
    gin_utils.parse_gin_flags(
        [], [path], ["DROPOUT_RATE = 0.2", "VOCABULARY = None"], finalize_config=False
    )
    return macro("MODEL")


@pytest.mark.parametrize(("family", "size"), FILES)
def test_a_network_has_as_many_parameters_as_that_of_transformers(family, size):
    model = model_of(family, size)
    config = model.module.config
    assert config.dropout_rate == config.attention_dropout_rate == 0.2
    variables = jax.eval_shape(
        lambda: model.get_initial_variables(jax.random.key(0), {"encoder_input_tokens": (1, 4)})
    )
    count = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))

    kind = ModernBertSizes if family == "modernbert" else BertSizes
    theirs = transformers.AutoConfig.for_model(**kind.from_fields(vars(config)).config())
    with torch.device("meta"):
        network = getattr(transformers, theirs.architectures[0])(theirs)
    assert count == sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_and_biases_do_not_decay(family):
    model = model_of(family, "tiny")
    assert isinstance(model.optimizer_def, DecoupledOptimizer)
    variables = jax.eval_shape(
        lambda: model.get_initial_variables(jax.random.key(0), {"encoder_input_tokens": (1, 4)})
    )
    params = jax.tree.map(lambda x: x, variables["params"])
    decays = model.optimizer_def.decays(params)
    for (path, shape), decay in zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(decays), strict=True
    ):
        stacked = "layers" in jax.tree_util.keystr(path)
        assert decay == (len(shape.shape) - stacked == 2), path


PHASES = ("ro_modernbert_base", "ro_modernbert_long", "ro_modernbert_decay")
RECIPES = ("ro_bert_tiny", "ro_roberta_base", *PHASES)


def run_of(recipe, monkeypatch, *bindings):
    """Return the arguments that a recipe gives to `train`."""
    main = types.ModuleType("__main__")
    main.train = recipe_facts.recorder(train)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(ROOT)
    flags = ["MODEL_DIR = 'runs/none'", *bindings]
    gin_utils.parse_gin_flags([], [f"gin/{recipe}.gin"], flags)
    return gin.get_configurable(main.train)()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains_what_it_says(recipe, monkeypatch):
    run = run_of(recipe, monkeypatch)
    cfg, model = run["train_dataset_cfg"], run["model"]
    for task in seqio.get_subtasks(cfg.provider):
        assert objective_of(task).masking.density < model.predicted_share
    assert cfg.task_feature_lengths["inputs"] <= model.module.config.max_length
    task_vocabulary = cfg.provider.output_features["inputs"].vocabulary
    assert task_vocabulary.tokenizer_file == model.output_vocabulary.tokenizer_file
    first, last = steps_of(run)
    rates = [rate_of(run)(step).item() for step in (first, (first + last) // 2, last)]
    assert rates[1] > 1e-4
    assert (rates[0] < 1e-7) == (recipe not in PHASES[1:])
    assert (rates[2] < 1e-7) == (recipe not in PHASES[:2])


def steps_of(run):
    """Return the first and the last step of a run."""
    path = run["cooldown_from"] or run["checkpoint_cfg"].restore.path
    first = int(path.rpartition("_")[2]) if path else 0
    return first, first + (run["relative_steps"] or run["total_steps"])


def rate_of(run):
    """Return the learning rate of a run by its step."""
    rate = gin.get_configurable("create_learning_rate_scheduler")()
    return cooldown.cooled(rate, run["cooldown_from"], steps_of(run)[1])


def test_a_phase_goes_on_where_the_one_before_ends(monkeypatch):
    runs = []
    for recipe in PHASES:
        with valid_run.gin_apart():
            runs.append(run_of(recipe, monkeypatch))
    starts = [run["cooldown_from"] or run["checkpoint_cfg"].restore.path for run in runs]
    ends = [f"runs/{r}/checkpoint_{steps_of(run)[1]}" for r, run in zip(PHASES, runs, strict=True)]
    assert starts == [[], *ends[:2]]
    configs = [run["model"].module.config for run in runs]
    sizes = [dataclasses.replace(c, max_length=0, global_theta=0.0) for c in configs]
    assert sizes[0] == sizes[1] == sizes[2]
    assert configs[1] == configs[2]
    assert configs[0].global_theta < configs[1].global_theta
    cfgs = [run["train_dataset_cfg"] for run in runs]
    lengths = [cfg.task_feature_lengths["inputs"] for cfg in cfgs]
    assert lengths == [c.max_length for c in configs] == [1024, 8192, 8192]
    assert {cfg.batch_size * cfg.task_feature_lengths["inputs"] for cfg in cfgs} == {512 * 1024}
    assert cfgs[0].seed != cfgs[1].seed  # no text is read twice in the same order
    densities = [
        {objective_of(task).masking.density for task in seqio.get_subtasks(cfg.provider)}
        for cfg in cfgs
    ]
    assert densities == [{0.3}, {0.15}, {0.05}]


@pytest.mark.slow
def test_ro_bert_tiny_learns(tmp_path, monkeypatch):
    run = run_of(
        "ro_bert_tiny",
        monkeypatch,
        "TRAIN_STEPS = 40",
        "EVAL_PERIOD = 40",
        "EVAL_STEPS = 2",
        "DROPOUT_RATE = 0.0",
        "BertConfig.num_layers = 1",
        "create_learning_rate_scheduler.warmup_steps = 10",
        "create_learning_rate_scheduler.base_learning_rate = 0.005",
        "SaveCheckpointConfig.period = 40",
    )
    run |= {"model_dir": str(tmp_path), "partitioner": PjitPartitioner(devices=jax.devices()[:1])}
    train(**run)
    lines = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    results = {
        e["step"]: e["metrics"]["ro_mini_masked_lm"] for e in lines if e["event"] == "evaluate"
    }
    losses = {step: results[step][metrics.UNNORMALIZED_LOSS] for step in (0, 40)}
    assert losses[0] == pytest.approx(np.log(2048), abs=0.1)
    assert losses[0] - losses[40] > 0.8
    # Either may be greater: frequent words are pieces, and a word of several counts once.
    for name in ("accuracy", "word_accuracy"):
        assert results[0][name] < 0.01 < results[40][name], name
