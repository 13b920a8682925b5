"""What a recipe says to the trainer that reads it: the model, the data, the steps, the schedule.

    PYTHONPATH=tests python -m golden.recipe_facts ro_t5x_tiny ro_t5x_base     # JSON by recipe

It asks the objects that gin builds, and trains nothing. `t5x` may be this repository's or
upstream's (`ask` asks either), so only names that both have are used.
"""

import dataclasses
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import seqio

import gin
from fakes.paths import ROOT, is_shipped

DEVICES = "--xla_force_host_platform_device_count=4"  # as many as num_partitions of any recipe
FIELDS = {
    "T5Config": "vocab_size dtype emb_dim num_heads num_encoder_layers num_decoder_layers head_dim "
    "mlp_dim mlp_activations dropout_rate logits_via_embedding float32_attention_logits",
    "DatasetConfig": "mixture_or_task_name task_feature_lengths split batch_size shuffle seed "
    "use_cached pack use_custom_packing_ops module use_memory_cache trim_output_features",
    "SaveCheckpointConfig": "dtype period keep keep_dataset_checkpoints save_dataset "
    "checkpoint_steps",
    "RestoreCheckpointConfig": "path mode assignment_map strict fallback_to_scratch dtype "
    "restore_dataset",
    "Adafactor": "factored multiply_by_parameter_scale beta1 decay_rate step_offset "
    "clipping_threshold weight_decay_rate min_dim_size_to_factor epsilon1 epsilon2 "
    "weight_decay_rate_lr_exponent global_norm_clip_threshold max_parameter_scale "
    "skip_nan_updates",
    "train": "total_steps eval_steps eval_period stats_period random_seed use_hardware_rng "
    "run_eval_before_training",
}
NETWORKS = ("t5x/examples/encoder", "t5x/examples/t5gemma2")  # those that upstream lacks
OURS = (*NETWORKS, "gin/optimizers/")
DATASETS = ("train_dataset_cfg", "train_eval_dataset_cfg", "infer_eval_dataset_cfg")
LOSS = ("z_loss", "label_smoothing", "loss_normalizing_factor")
WHOLE = ("rates", "task_feature_lengths")  # one fact each, whatever their keys are
SCHEDULE_STEPS = (0, 1, 99, 100, 1000, 10_000, 100_000, 1_000_000)
_counts: dict[str, int] = {}


def recipes() -> list[str]:
    """Return the names of the recipes that upstream's trainer can train too."""
    paths = filter(is_shipped, (ROOT / "gin").glob("*.gin"))
    texts = {path.stem: _with_includes(path) for path in paths}
    return sorted(name for name, text in texts.items() if not any(part in text for part in OURS))


def _with_includes(path: pathlib.Path) -> str:
    text = path.read_text()
    included = re.findall(r"^include '(.+)'$", text, re.MULTILINE)
    return "".join([text, *(_with_includes(ROOT / name) for name in included)])


def recorder(train: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Return a function of the name and arguments of `train` that returns them, defaults too."""
    signature = inspect.signature(train)
    defaults = {k: p.default for k, p in signature.parameters.items() if p.default is not p.empty}
    record = lambda **arguments: defaults | arguments
    record.__name__ = record.__qualname__ = "train"
    record.__module__ = "__main__"
    vars(record)["__signature__"] = signature
    return record


def facts(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat facts of one run as JSON values.

    Args:
      run: the arguments that gin gives to `train`; the recipe is still parsed.
    """
    model, checkpoint = run["model"], run["checkpoint_cfg"]
    optimizer = model.optimizer_def
    # Upstream keeps these after an underscore, and the optimizer's in an object of their own.
    setting_of = lambda name: getattr(model, name, getattr(model, f"_{name}", None))
    settings = getattr(optimizer, "hyper_params", optimizer)
    rate = gin.get_configurable("create_learning_rate_scheduler")()
    steps = [*SCHEDULE_STEPS, run["total_steps"] // 2, run["total_steps"]]
    datasets = {name: run[name] for name in DATASETS}
    values = {
        "network": _fields(model.module.config, "T5Config"),
        "parameters": parameter_count(model),
        "vocabularies": [_vocabulary(model.input_vocabulary), _vocabulary(model.output_vocabulary)],
        "loss": {name: setting_of(name) for name in LOSS},
        "decode_fn": setting_of("decode_fn").__qualname__.partition(".")[0],
        "optimizer": {"name": type(optimizer).__name__, **_fields(settings, "Adafactor")},
        "rates": {step: float(np.float32(rate(step))) for step in sorted(set(steps))},
        "train": {name: run[name] for name in FIELDS["train"].split()},
        "datasets": {name: cfg and _fields(cfg, "DatasetConfig") for name, cfg in datasets.items()},
        "save": _fields(checkpoint.save, "SaveCheckpointConfig"),
        "restore": _fields(checkpoint.restore, "RestoreCheckpointConfig"),
        "num_partitions": gin.query_parameter("PjitPartitioner.num_partitions"),
        "num_microbatches": gin.query_parameter("trainer.Trainer.num_microbatches"),
    }
    if isinstance(values["restore"]["path"], str):  # launch/run_upstream.py makes it absolute
        values["restore"]["path"] = values["restore"]["path"].removeprefix(f"{ROOT}/")
    return flat(json.loads(json.dumps(values, default=_plain)))


def parameter_count(model: Any) -> int:
    """Return the number of parameters; nothing is allocated, and equal networks are traced once."""
    if (network := repr(model.module)) not in _counts:
        shapes = {"encoder_input_tokens": (1, 4), "decoder_input_tokens": (1, 4)}
        variables = jax.eval_shape(
            lambda rng: model.get_initial_variables(rng, shapes), jax.random.PRNGKey(0)
        )
        _counts[network] = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
    return _counts[network]


def _fields(owner: Any, kind: str) -> dict[str, Any]:
    values = {name: getattr(owner, name) for name in FIELDS[kind].split()}
    if kind == "T5Config":
        values["dtype"] = np.dtype(values["dtype"]).name
    return values


def _vocabulary(vocabulary: seqio.Vocabulary) -> dict[str, Any]:
    values = {"name": type(vocabulary).__name__, "extra_ids": vocabulary._extra_ids}
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        values["file"] = vocabulary.sentencepiece_model_file
    return values


def _plain(value: Any) -> Any:
    """Return a value that JSON does not know as one that it does."""
    if isinstance(value, np.generic | jax.Array):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def ask(recipes: Sequence[str], upstream: pathlib.Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the flat facts of each recipe, asked in a process of its own.

    Args:
      recipes: names of files in gin/.
      upstream: a checkout of upstream T5X, whose trainer is asked instead of this one.

    Raises:
      RuntimeError: a recipe cannot be built; the end of the output is in the message.
    """
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": DEVICES}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'tests'}"
    command = [sys.executable, "-m"]
    if upstream:
        environment |= {"T5X_DIR": str(upstream), "TF_CPP_MIN_LOG_LEVEL": "2"}
        environment["PYTHONPATH"] = f"{upstream}:{environment['PYTHONPATH']}"
        command = [str(upstream.parent / "venv/bin/python"), "-P", "launch/run_upstream.py"]
    command += ["golden.recipe_facts", *recipes]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the recipes cannot be built:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)


def flat(facts: Any, name: str = "") -> dict[str, Any]:
    """Return {"train/total_steps": 300, …} of nested facts."""
    if not isinstance(facts, dict) or name.rpartition("/")[2] in WHOLE:
        return {name: facts}
    parts = [flat(value, f"{name}/{key}" if name else key) for key, value in facts.items()]
    return {key: value for part in parts for key, value in part.items()}


def differences(facts: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return {name: (value, other value)} of the flat facts that differ; a missing one is None."""
    pairs = {name: (facts.get(name), others.get(name)) for name in {**facts, **others}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def golden() -> dict[str, dict[str, Any]]:
    """Return upstream's flat facts of each recipe."""
    recipes = json.loads((ROOT / "tests/golden/recipe_facts.json").read_text())
    usual = recipes.pop("usual")
    return {recipe: usual | facts for recipe, facts in recipes.items()}


def main() -> None:
    """Print the facts of the recipes of the command line."""
    from t5x import gin_utils
    from t5x.train import train

    main_module: Any = sys.modules["__main__"]  # where gin files look for `train`
    main_module.train = recorder(train)
    by_recipe = {}
    for recipe in sys.argv[1:]:
        gin.clear_config()
        gin_utils.parse_gin_flags([], [f"gin/{recipe}.gin"], [f"MODEL_DIR = 'runs/{recipe}'"])
        by_recipe[recipe] = facts(gin.get_configurable(main_module.train)())
    print(json.dumps(by_recipe, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
