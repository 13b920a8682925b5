"""A run as its gin files describe it: the arguments of `t5x.train.train`.

gin has one configuration per process, so loading a recipe replaces the one loaded before.
"""

import argparse
import contextlib
import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
from t5x import gin_utils
from t5x import train as train_script
from t5x.input_pipeline.config import DatasetConfig
from t5x.settings.configuration import current
from t5x.start import cooldown
from t5x.start.checkpoint import last_step


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Gin files in order, bindings ("NAME = value") after them, and search paths of the files."""

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...] = ()
    search_paths: tuple[str, ...] = (".",)

    @property
    def name(self) -> str:
        """The recipe's name: the name of the last file."""
        return Path(self.gin_files[-1]).stem if self.gin_files else "run"

    def with_bindings(self, *bindings: str) -> "Recipe":
        """Return the recipe with more bindings, which take precedence."""
        return dataclasses.replace(self, bindings=(*self.bindings, *bindings))

    @classmethod
    def of_flags(cls, flags: argparse.Namespace) -> "Recipe":
        """Return the recipe that the flags of `add_flags` name."""
        paths = flags.gin_search_paths.split(",")
        return cls(tuple(flags.gin_file), tuple(flags.gin_bindings), tuple(paths))


def add_flags(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add the flags that name a recipe, as the trainer does; one is needed without a default."""
    add = parser.add_argument
    files = f"gin files, in order; default {default}" if default else "gin files, in order"
    add("--gin_file", action="append", required=not default, help=files)
    add("--gin_bindings", action="append", default=[], help="'NAME = value', after the files")
    add("--gin_search_paths", default=".", help="folders to search for gin files")


@functools.cache
def _main_module() -> types.ModuleType:
    """Return a `__main__` for gin files; its `train` returns its arguments, with defaults."""
    signature = inspect.signature(train_script.train)

    def train(**arguments: Any) -> argparse.Namespace:
        bound = signature.bind_partial(**arguments)
        bound.apply_defaults()
        return argparse.Namespace(**bound.arguments)

    vars(train).update(__signature__=signature)  # gin reads the arguments' names from it
    module = types.ModuleType("__main__")
    vars(module).update(train=train)
    return module


@contextlib.contextmanager
def as_main(module: types.ModuleType) -> Iterator[None]:
    """Use `module` as `__main__`, which gin files import as `train_script`.

    What is imported meanwhile stays imported.
    """
    real = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.modules["__main__"] = real


def parse(recipe: Recipe) -> list[Path]:
    """Read the gin files, and return them with what they include.

    Raise UserError with file and line for a name that is unknown.
    """
    gin.clear_config()
    with as_main(_main_module()):
        return gin_utils.parse_gin_flags(
            recipe.search_paths, recipe.gin_files, recipe.bindings, finalize_config=False
        )


def finalize(recipe: Recipe) -> None:
    """Lock the configuration after `parse`; MODEL_DIR defaults to runs/<recipe>, as in launch/.

    Raise UserError for names without a value, or a binding that nothing uses.
    """
    bindings = list(recipe.bindings)
    if "MODEL_DIR" in current().missing():
        bindings.append(f"MODEL_DIR = 'runs/{recipe.name}'")
    with as_main(_main_module()):
        gin_utils.parse_gin_flags(recipe.search_paths, (), bindings)


def build() -> argparse.Namespace:
    """Make the objects of the run, after `finalize`, or raise their UserError."""
    module = _main_module()
    with as_main(module):
        run = gin.get_configurable(module.train)()
    run.checkpoint_cfg = cooldown.branch(
        run.cooldown_from,
        run.relative_steps,
        run.model_dir,
        run.checkpoint_cfg,
        run.cooldown_restore_dataset,
    )
    run.total_steps = last_step(
        run.model_dir, run.total_steps, run.relative_steps, run.checkpoint_cfg.restore
    )
    return run


def datasets(run: argparse.Namespace) -> dict[str, DatasetConfig]:
    """Return the datasets of a run, by gin scope."""
    scopes = ("train", "train_eval", "infer_eval")
    configs = {scope: getattr(run, f"{scope}_dataset_cfg") for scope in scopes}
    return {scope: cfg for scope, cfg in configs.items() if cfg is not None}


def load(recipe: Recipe) -> argparse.Namespace:
    """Parse, finalize and build."""
    parse(recipe)
    finalize(recipe)
    return build()
