"""Write upstream_names.json: names that upstream T5X lets gin files bind, and its models' sizes.

    (cd DIR && venv/bin/python REPOSITORY/tests/golden/make_upstream_names.py)

DIR is what `bash launch/upstream.sh DIR` makes. `names` has by module the classes and functions
that upstream defines there, each with its arguments; `parameters` has by gin file the number of a
model's parameters.
"""

import importlib
import inspect
import json
import pathlib

import jax

import gin
import t5x

MODULES = (
    *("train", "eval", "infer", "precompile", "utils", "models", "trainer", "partitioning"),
    *("adafactor", "optimizers", "decoding", "gin_utils", "checkpoints", "losses", "metrics"),
    *("examples.t5.network", "examples.t5.layers"),
)
METHODS = ("predict_batch", "predict_batch_with_aux", "score_batch")
HERE = pathlib.Path(__file__).parent


def names(module):
    found = {}
    for name, value in vars(importlib.import_module(f"t5x.{module}")).items():
        is_own = getattr(value, "__module__", None) == f"t5x.{module}"
        is_wrapped = module == "optimizers" and getattr(value, "__module__", "").startswith("optax")
        is_callable = inspect.isclass(value) or inspect.isfunction(value)
        if name.startswith("_") or not is_callable or not (is_own or is_wrapped):
            continue
        is_error = inspect.isclass(value) and issubclass(value, BaseException)
        if getattr(value, "_is_protocol", False) or is_error:
            continue
        found[name] = list(inspect.signature(value).parameters) if is_own else []
        for method in METHODS:
            if inspect.isclass(value) and hasattr(value, method):
                arguments = inspect.signature(getattr(value, method)).parameters
                found[f"{name}.{method}"] = [
                    argument for argument in arguments if argument != "self"
                ]
    return found


def parameters(file):
    gin.clear_config()
    gin.parse_config(f"include '{file}'\nDROPOUT_RATE = 0.0")
    with gin.config_scope("MODEL"):
        model = gin.get_configurable("gin.macro")()
    shapes = {"encoder_input_tokens": (1, 4), "decoder_input_tokens": (1, 4)}
    types = dict.fromkeys(shapes, "int32")
    initial = lambda rng: model.get_initial_variables(rng, shapes, types)
    variables = jax.eval_shape(initial, jax.random.PRNGKey(0))
    return sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))


root = pathlib.Path(t5x.__path__[0]).parent
gin.add_config_file_search_path(str(root))
files = sorted(str(path.relative_to(root)) for path in root.glob("t5x/examples/t5/*/*.gin"))
facts = {
    "names": {module: names(module) for module in MODULES},
    "parameters": {file: parameters(file) for file in files},
}
(HERE / "upstream_names.json").write_text(json.dumps(facts, indent=0) + "\n")
