"""Gin at the doors: flags become bindings, bad input becomes one sentence, a run keeps its gin.

def main(_):
    gin_utils.parse_gin_flags(FLAGS.gin_search_paths, FLAGS.gin_file, FLAGS.gin_bindings)
    gin.get_configurable(train)()

gin_utils.run(main)      # and `--gin.TRAIN_STEPS=500` binds the macro TRAIN_STEPS
"""

import contextlib
import difflib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import app, logging
from etils import epath

import gin

# gin has no public way to look at what it parsed; gin-config is pinned to 0.5.0.
from gin import config as gin_config
from gin import config_parser, resource_reader
from t5x.gin_errors import LEFT_OUT, ROOT, nearest, one_sentence

__all__ = [
    "LEFT_OUT",
    "missing",
    "nearest",
    "parse_gin_flags",
    "rewrite_gin_args",
    "run",
    "summarize_gin_config",
]

MAINS = {  # as run files call them: the function of `__main__`, and the file that sets it
    "train_script.train": ("train", "t5x/configs/runs/pretrain.gin"),
    "eval_script.evaluate": ("evaluate", "t5x/configs/runs/eval.gin"),
    "infer_script.infer": ("infer", "t5x/configs/runs/infer.gin"),
    "train_script.precompile": ("precompile", "t5x/configs/runs/precompile.gin"),
}


class _OtherDoors(set):
    """Configurables to pass over, false because gin passes over every import where it is true."""

    def __bool__(self):
        return False


def run(main: Callable[[list[str]], Any]) -> None:
    """`absl.app.run` with `--gin.NAME=value` flags.

    A ValueError (bad input, status 2), or a RuntimeError or FloatingPointError (a run that cannot
    go on, status 1), that this repository raised is printed as its sentence, without a traceback.
    Any other exception keeps its traceback.
    """

    def guarded(function: Callable[[list[str]], Any], argv: list[str]) -> Any:
        try:
            return function(argv)
        except (ValueError, RuntimeError, FloatingPointError) as error:
            if not _is_ours(error):
                raise
            logging.debug("%s", traceback.format_exc())
            # gin appends the configurables through which an exception passed.
            print("Error:", str(error).split("\n  In call to configurable")[0], file=sys.stderr)
            refused = isinstance(error, ValueError) and not isinstance(error, OSError)
            sys.exit(2 if refused else 1)  # what cannot be reached now may be so later

    parse = lambda argv: app.parse_flags_with_usage(guarded(rewrite_gin_args, argv))
    app.run(lambda argv: guarded(main, argv), flags_parser=parse)


def _is_ours(error: BaseException) -> bool:
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    file = Path(frame.f_code.co_filename).resolve()
    return file.is_relative_to(ROOT) and "site-packages" not in file.parts


def rewrite_gin_args(args: Sequence[str]) -> list[str]:
    """Turns each `--gin.NAME=value` into `--gin_bindings=NAME = value`.

    Raises:
      ValueError: such a flag has no value.
    """

    def rewrite(arg: str) -> str:
        if not arg.startswith("--gin."):
            return arg
        name, equals, value = arg.removeprefix("--gin.").partition("=")
        if not equals or not name or not value.strip():
            raise ValueError(f"{arg} has no value: write --gin.NAME=value.")
        return f"--gin_bindings={name} = {value}"

    return [rewrite(arg) for arg in args]


def macro(name: str) -> Any:
    """What the configuration gives a macro such as MODEL_DIR; None for nothing."""
    try:
        return gin.query_parameter(f"{name}/macro.value")
    except ValueError:
        return None


def parse_gin_flags(
    gin_search_paths: Sequence[str],
    gin_files: Sequence[str] | None,
    gin_bindings: Sequence[str],
    skip_unknown: bool | Sequence[str] = False,
    finalize: bool = True,
) -> None:
    """Parses gin files, then bindings; what comes later wins.

    Bindings may use every name that the files import. A configuration may hold settings of another
    door than the one that runs (a recipe under `eval`): these are passed over.

    Args:
      gin_search_paths: where files and includes are looked for, after the current folder and
        before the repository.
      gin_files: in order; None for none.
      gin_bindings: "NAME = value" or "module.Class.argument = value", in order.
      skip_unknown: True, or the configurables, to pass over where they are unknown.
      finalize: check that nothing is missing, and lock.

    Raises:
      ValueError: a file, an import, a name or a value is bad, or values are missing (all named).
    """
    _search_in([*gin_search_paths, str(ROOT)])
    if skip_unknown is False:
        skip_unknown = _OtherDoors(s for s, main in MAINS.items() if not hasattr(_main(), main[0]))
    for file in gin_files or ():
        with one_sentence(f"--gin_file={file}"):
            gin.parse_config_file(file, skip_unknown=skip_unknown)
    for binding in gin_bindings:
        with one_sentence(f"--gin.{binding.replace(' = ', '=', 1)}"):
            gin.parse_config(_with_imports(binding), skip_unknown=skip_unknown)
    if finalize:
        _check_macros(gin_bindings)
        _check_main()
        gin.finalize()


def summarize_gin_config(model_dir: str, summary_writer: Any, step: int) -> None:
    """Writes `<model_dir>/config.gin`, which can be parsed again, and both texts as summaries.

    Only process 0 writes.

    Args:
      model_dir: local or gs://.
      summary_writer: a clu MetricWriter, or None.
      step: of the summaries.
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


def missing() -> list[str]:
    """Macros without a value that something uses, and parameters still `%gin.REQUIRED`, sorted."""
    used, unset = _macros_used(), set()
    for (scope, selector), values in gin_config._CONFIG.items():
        for parameter, value in values.items():
            if _is_required(value):
                is_macro = selector == "gin.macro"
                unset.add(scope if is_macro else f"{selector}.{parameter}")
    bound = _macros_bound()
    return sorted((unset - bound) | (unset & used) | (used - bound))


def _search_in(paths: Sequence[str]) -> None:
    """Adds to gin's search paths.

    gin's reader of packaged files is left out: it raises TypeError on folders that are no package.
    """
    readers = gin_config._FILE_READERS
    readers[:] = [r for r in readers if r[0] is not resource_reader.system_path_reader]
    for path in paths:
        if path not in gin_config._LOCATION_PREFIXES:
            gin.add_config_file_search_path(path)


def _with_imports(binding: str) -> str:
    """Puts the files' imports before a binding whose name begins with one of theirs."""
    imports = gin_config._IMPORTS
    with contextlib.suppress(SyntaxError, ValueError):
        key = binding.partition("=")[0].strip()
        _, selector, argument = config_parser.parse_binding_key(key)
        imported = {statement.bound_name() for statement in imports}
        if argument and selector.partition(".")[0] not in imported:
            return binding
    lines = {statement.format() for statement in imports}
    return "\n".join([*sorted(lines, key=lambda line: ("__gin__" not in line, line)), binding])


def _check_macros(bindings: Sequence[str]) -> None:
    """Refuses values that are missing, and macros of the command line that nothing uses."""
    used, bound = _macros_used(), _macros_bound()
    unused = sorted(bound - used)
    for name in unused:
        if any(re.match(rf"{re.escape(name)}\s*=", binding) for binding in bindings):
            raise ValueError(
                f"--gin.{name} is set but nothing in this configuration uses it"
                f"{nearest(name, used)}."
            )
        # A required value that nothing uses (another door's) need not be given.
        if _is_required(gin_config._CONFIG[name, "gin.macro"]["value"]):
            del gin_config._CONFIG[name, "gin.macro"]
        elif difflib.get_close_matches(name, used, n=1, cutoff=0.8):
            logging.warning("%s is set but nothing uses it%s.", name, nearest(name, used))
    if names := missing():
        macros = [name for name in names if "." not in name]
        hints = [f"--gin.{name}=…" for name in names if name != "MODEL"]
        todo = f"pass {' '.join(hints)}, or set it in a gin file" if hints else ""
        if "MODEL" in names:
            model = "include a model file such as t5x/examples/t5/t5_1_1/base.gin"
            todo = f"{model}, and {todo}" if todo else model
        typos = [n for n in unused if difflib.get_close_matches(n, macros, n=1, cutoff=0.7)]
        typo = f" ({', '.join(typos)} is set but nothing uses it)" if typos else ""
        verb = "is" if len(names) == 1 else "are"
        raise ValueError(f"{', '.join(names)} {verb} not set{typo}: {todo}.")


def _check_main() -> None:
    """Refuses a configuration that does not set all that the function about to be run needs."""
    bound: dict[Any, set[str]] = {}
    for (_, selector), values in gin_config._CONFIG.items():
        bound.setdefault(gin_config._REGISTRY[selector].wrapped, set()).update(values)
    for name, file in MAINS.values():
        function = getattr(_main(), name, None)
        if function is None:
            continue
        parameters = inspect.signature(function).parameters.values()
        needed = {p.name for p in parameters if p.default is p.empty and p.kind not in (2, 4)}
        if lacking := sorted(needed - bound.get(function, set())):
            raise ValueError(f"{name} gets no {', '.join(lacking)}: include {file}, or set them.")


def _main() -> Any:
    return sys.modules["__main__"]


def _macros_bound() -> set[str]:
    return {scope for scope, selector in gin_config._CONFIG if selector == "gin.macro"}


def _macros_used() -> set[str]:
    references = gin_config.iterate_references(gin_config._CONFIG)
    macro = gin_config.macro
    return {"/".join(r.scopes) for r in references if r.configurable.wrapped is macro}


def _is_required(value: Any) -> bool:
    return isinstance(value, gin_config.ConfigurableReference) and value.scopes == ["gin.REQUIRED"]
