"""Parses gin files and flags, and saves the configuration.

def main(_):
    gin_utils.parse_gin_flags(FLAGS.gin_search_paths, FLAGS.gin_file, FLAGS.gin_bindings)
    gin.get_configurable(train)()

gin_utils.run(main)      # and `--gin.TRAIN_STEPS=500` binds the macro TRAIN_STEPS
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import app
from etils import epath

import gin
from common import errors
from common.errors import UserError
from t5x.settings import checks
from t5x.settings.parser import Reader

_STOPPED = "Stopped by Ctrl-C; the same command continues from what has been saved, if anything."


def run(
    main: Callable[[list[str]], Any],
    parse: Callable[[list[str]], list[str]] = app.parse_flags_with_usage,
) -> None:
    """Call `absl.app.run` with `--gin.NAME=value` flags.

    `parse` gets the rewritten flags. `common.errors` reports its errors and those of `main`.
    """
    app.run(
        errors.guarded(main, _STOPPED),
        flags_parser=errors.guarded(lambda argv: parse(rewrite_gin_args(argv))),
    )


def rewrite_gin_args(args: Sequence[str]) -> list[str]:
    """Turn each `--gin.NAME=value` into `--gin_bindings=NAME = value`.

    Raise UserError for such a flag without a value.
    """

    def rewrite(arg: str) -> str:
        if not arg.startswith("--gin."):
            return arg
        name, equals, value = arg.removeprefix("--gin.").partition("=")
        if not equals or not name or not value.strip():
            raise UserError(arg, why="has no value", to_set="write --gin.NAME=value")
        return f"--gin_bindings={name} = {value}"

    return [rewrite(arg) for arg in args]


def parse_gin_flags(
    gin_search_paths: Sequence[str],
    gin_files: Sequence[str] | None,
    gin_bindings: Sequence[str],
    skip_unknown: bool | Collection[str] = False,
    finalize_config: bool = True,
) -> list[Path]:
    """Parse gin files, then bindings; later ones win. Return the files and what they include.

    Bindings may use every name that the files import. The settings of other entry points (a
    training recipe under `eval`) are skipped.

    Args:
      gin_search_paths: where files and includes are looked for, after the current folder and
        before the repository.
      gin_files: in order; None for none.
      gin_bindings: "NAME = value" or "module.Class.argument = value", in order.
      skip_unknown: True, or the configurables, to skip where they are unknown.
      finalize_config: check all values and that none is missing, and lock.

    Raises:
      UserError: a file, an import, a name or a value is bad, or values are missing (all named).
    """
    reader = Reader(gin_search_paths, skip_unknown)
    for file in gin_files or ():
        reader.read_file(file)
    for binding in gin_bindings:
        reader.read_flag(binding)
    if finalize_config:
        checks.check(gin_bindings)
        gin.finalize()
    return reader.files


def sum_fn(var1: Any, var2: Any) -> Any:
    """Return `var1 + var2`, for gin files: `STEPS = @gin_utils.sum_fn()`."""
    return var1 + var2


def bool_fn(var1: Any) -> bool:
    """Return the truth of a value, for gin files."""
    return bool(var1)


def string_split_fn(
    text: str, separator: str, maxsplit: int = -1, index: int | None = None
) -> list[str] | str:
    """Return the parts of `text`, at most `maxsplit` + 1, or the one at `index`; for gin files."""
    parts = text.split(separator, maxsplit)
    return parts if index is None else parts[index]


def summarize_gin_config(model_dir: str, summary_writer: Any, step: int) -> None:
    """Write `<model_dir>/config.gin`, which can be parsed again, on process 0.

    A clu MetricWriter also gets text summaries of this `step`; `summary_writer` may be None.
    """
    if jax.process_index() != 0:
        return
    text = gin.config_str()
    folder = epath.Path(model_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.gin").write_text(text)
    if summary_writer is not None:
        texts = {"config": text, "operative_config": gin.operative_config_str()}
        markdown = {name: gin.markdown(text) for name, text in texts.items()}
        summary_writer.write_texts(step, markdown)
        summary_writer.flush()
