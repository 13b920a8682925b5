"""A run as its gin files describe it: the arguments `t5x.train.train` would be called with.

  recipe = Recipe(("gin/ro_t5x_base.gin",), ("BATCH_SIZE = 256",))
  run = load(recipe)
  run.total_steps, run.train_dataset_cfg.batch_size, run.partitioner.num_partitions

gin has one configuration a process, so loading another recipe replaces the one before.
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

import gin


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Gin files in order, bindings ("NAME = value") after them, folders that files are found in."""

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...] = ()
    search_paths: tuple[str, ...] = (".",)

    @property
    def name(self) -> str:
        """The last file's name, which is the recipe's."""
        return Path(self.gin_files[-1]).stem if self.gin_files else "run"

    def with_bindings(self, *bindings: str) -> "Recipe":
        """The same with more bindings, which win."""
        return dataclasses.replace(self, bindings=(*self.bindings, *bindings))


@functools.cache
def _door() -> types.ModuleType:
    """A `__main__` for gin files, whose `train` gives its arguments back instead of training."""
    from t5x.train import train as real

    def train(**arguments):
        return arguments

    train.__signature__ = inspect.signature(real)
    door = types.ModuleType("__main__")
    door.train = train
    return door


@contextlib.contextmanager
def _as_main(door: types.ModuleType) -> Iterator[None]:
    """Gin files write `import __main__ as train_script`."""
    real = sys.modules["__main__"]
    sys.modules["__main__"] = door
    try:
        yield
    finally:
        sys.modules["__main__"] = real


def parse(recipe: Recipe) -> None:
    """Reads the files: every file is there, every name in them is known.

    Raises:
      ValueError: one sentence with file and line.
    """
    from t5x import gin_utils

    gin.clear_config()
    with _as_main(_door()):
        gin_utils.parse_gin_flags(
            recipe.search_paths, recipe.gin_files, recipe.bindings, finalize=False
        )


def finalize(recipe: Recipe) -> None:
    """Checks, after `parse`, that every value is given that something uses, and locks.

    Where nothing names MODEL_DIR it is runs/<recipe>, as in launch/.

    Raises:
      ValueError: the names that have no value, or a binding that nothing uses.
    """
    from t5x import gin_utils
    from t5x.cli import gin_internals

    bindings = list(recipe.bindings)
    if "MODEL_DIR" in gin_internals.missing_values():
        bindings.append(f"MODEL_DIR = 'runs/{recipe.name}'")
    with _as_main(_door()):
        gin_utils.parse_gin_flags(recipe.search_paths, (), bindings)


def build() -> argparse.Namespace:
    """Makes, after `finalize`, the objects of the run; defaults stand where nothing is bound.

    Raises:
      ValueError: an object refuses what it is made of.
    """
    door = _door()
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(door.train).parameters.items()
        if parameter.default is not parameter.empty
    }
    with _as_main(door):
        return argparse.Namespace(**{**defaults, **gin.get_configurable(door.train)()})


def load(recipe: Recipe) -> argparse.Namespace:
    """`parse`, `finalize` and `build` in one."""
    parse(recipe)
    finalize(recipe)
    return build()
