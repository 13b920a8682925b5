"""Bring upstream_names.json up to date: names, arguments that gin files may bind, models' sizes.

    (cd DIR && venv/bin/python REPOSITORY/tests/golden/make_upstream_names.py)

DIR is what `bash launch/upstream.sh DIR` makes. `names` has by module the classes and functions
that are listed there, each with upstream's arguments; `public` has by module all public names that
it defines; `parameters` has by gin file the number of a model's parameters.
"""

import ast
import importlib
import inspect
import json
import pathlib

import jax

import gin
import t5x

FILE = pathlib.Path(__file__).parent / "upstream_names.json"


def arguments(module, name):
    value = importlib.import_module(f"t5x.{module}")
    for part in name.split("."):
        value = getattr(value, part)
    return [argument for argument in inspect.signature(value).parameters if argument != "self"]


def public(module):
    """Return the names that a module's own statements bind, imports left out."""
    path = pathlib.Path(importlib.import_module(f"t5x.{module}").__file__)
    names = set()
    todo = ast.parse(path.read_text()).body
    while todo:
        match todo.pop():
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(each.id for each in targets if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.If() | ast.Try() as block:
                todo += [*block.body, *block.orelse]
    return " ".join(sorted(name for name in names if not name.startswith("_")))


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
before = json.loads(FILE.read_text())
facts = {
    "names": {
        module: {name: arguments(module, name) for name in names}
        for module, names in before["names"].items()
    },
    "public": {module: public(module) for module in before["public"]},
    "parameters": {file: parameters(file) for file in files},
}
FILE.write_text(json.dumps(facts, indent=1) + "\n")
