"""Parse gin files and flags, explain mistakes in one sentence, and save what was parsed.

def main(_):
    gin_utils.parse_gin_flags(FLAGS.gin_search_paths, FLAGS.gin_file, FLAGS.gin_bindings)
    gin.get_configurable(train)()

gin_utils.run(main)      # and `--gin.TRAIN_STEPS=500` binds the macro TRAIN_STEPS
"""

import contextlib
import difflib
import importlib.util
import inspect
import pkgutil
import pydoc
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import app, logging
from etils import epath

import gin
from common import errors
from gin import config as gin_config
from gin import config_parser, resource_reader
from t5x.settings import gin_values
from t5x.settings.upstream_names import ignores

ROOT = Path(__file__).resolve().parent.parent
MAINS = {  # as gin files call them: the function of `__main__`, and the file that sets it
    "train_script.train": ("train", "t5x/configs/runs/pretrain.gin"),
    "eval_script.evaluate": ("evaluate", "t5x/configs/runs/eval.gin"),
    "infer_script.infer": ("infer", "t5x/configs/runs/infer.gin"),
    "train_script.precompile": ("precompile", "t5x/configs/runs/precompile.gin"),
}
_STOPPED = "Stopped by Ctrl-C; the same command continues from what has been saved, if anything."


class _SettingsOfOthers(set):
    """Configurables to skip: those of other entry points.

    Empty in a boolean test: where `skip_unknown` is true, gin skips imports that fail.
    """

    def __bool__(self):
        return False


def run(
    main: Callable[[list[str]], Any],
    parse: Callable[[list[str]], list[str]] = app.parse_flags_with_usage,
) -> None:
    """Call `absl.app.run` with `--gin.NAME=value` flags.

    Errors of `parse`, which gets the rewritten flags, and of `main` end as `common.errors`
    says.
    """
    app.run(
        errors.guarded(main, _STOPPED),
        flags_parser=errors.guarded(lambda argv: parse(rewrite_gin_args(argv))),
    )


def rewrite_gin_args(args: Sequence[str]) -> list[str]:
    """Turn each `--gin.NAME=value` into `--gin_bindings=NAME = value`.

    Raise ValueError for such a flag without a value.
    """

    def rewrite(arg: str) -> str:
        if not arg.startswith("--gin."):
            return arg
        name, equals, value = arg.removeprefix("--gin.").partition("=")
        if not equals or not name or not value.strip():
            raise ValueError(f"{arg} has no value: write --gin.NAME=value.")
        return f"--gin_bindings={name} = {value}"

    return [rewrite(arg) for arg in args]


def parse_gin_flags(
    gin_search_paths: Sequence[str],
    gin_files: Sequence[str] | None,
    gin_bindings: Sequence[str],
    skip_unknown: bool | Sequence[str] | set[str] = False,
    finalize_config: bool = True,
) -> None:
    """Parse gin files, then bindings; later ones win.

    Bindings may use every name that the files import. The settings of other entry points (a
    training recipe under `eval`) are skipped.

    Args:
      gin_search_paths: where files and includes are looked for, after the current folder and
        before the repository.
      gin_files: in order; None for none.
      gin_bindings: "NAME = value" or "module.Class.argument = value", in order.
      skip_unknown: True, or the configurables, to skip where they are unknown.
      finalize_config: check that nothing is missing, and lock.

    Raises:
      ValueError: a file, an import, a name or a value is bad, or values are missing (all named).
        Types and limits of values are checked where `finalize_config` is set.
    """
    add_search_paths([*gin_search_paths, str(ROOT)])
    if skip_unknown is False:
        others = (selector for selector, (name, _) in MAINS.items() if not _main_has(name))
        skip_unknown = _SettingsOfOthers(others)
    with skipping(ignores):
        for file in gin_files or ():
            with one_sentence(f"--gin_file={file}"):
                gin.parse_config_file(file, skip_unknown=skip_unknown)
        for binding in gin_bindings:
            with one_sentence(f"--gin.{binding.replace(' = ', '=', 1)}"):
                gin.parse_config(_with_imports(binding), skip_unknown=skip_unknown)
    if finalize_config:
        _check_macros(gin_bindings)
        _check_main()
        for name, value, function, parameter in bound_values():
            gin_values.check(name, value, function, parameter)
        gin.finalize()


def sum_fn(var1: Any, var2: Any) -> Any:
    """Return `var1 + var2`, for gin files: `STEPS = @gin_utils.sum_fn()`."""
    return var1 + var2


def bool_fn(var1: Any) -> bool:
    """Return whether a value is true, for gin files."""
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


def _with_imports(binding: str) -> str:
    """Put the files' imports before a binding, unless its name begins with none of them."""
    imports = import_lines()
    with contextlib.suppress(SyntaxError, ValueError):
        key = binding.partition("=")[0].strip()
        _, selector, argument = config_parser.parse_binding_key(key)
        if argument and selector.partition(".")[0] not in imports:
            return binding
    return "\n".join([*imports.values(), binding])


def _check_macros(bindings: Sequence[str]) -> None:
    """Reject missing values, and macros of the command line that nothing uses."""
    used = macros_used()
    unused = sorted(macros_bound() - used)
    for name in unused:
        if any(re.match(rf"{re.escape(name)}\s*=", binding) for binding in bindings):
            raise ValueError(
                f"--gin.{name} is set but nothing in this configuration uses it"
                f"{nearest(name, used)}."
            )
        # A required value that nothing uses (of another entry point) need not be given.
        dropped = drop_required_macro(name)
        if not dropped and difflib.get_close_matches(name, used, n=1, cutoff=0.8):
            logging.warning("%s is set but nothing uses it%s.", name, nearest(name, used))
    if names := missing_values():
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
    """Reject a configuration that lacks parameters of the function about to be run."""
    bound = bound_parameters()
    for name, file in MAINS.values():
        if _main_has(name):
            function = getattr(sys.modules["__main__"], name)
            parameters = inspect.signature(function).parameters.values()
            variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            needed = {p.name for p in parameters if p.default is p.empty and p.kind not in variadic}
            if lacking := sorted(needed - bound.get(function, set())):
                lacks = f"{name} gets no {', '.join(lacking)}"
                raise ValueError(f"{lacks}: include {file}, or set them.")


def _main_has(name: str) -> bool:
    return hasattr(sys.modules["__main__"], name)


# What gin raises for a mistake, beside SyntaxError. It appends lines of its own with the place.
# `one_sentence` turns all of them into a ValueError such as "a.gin:3: train has no parameter
# 'total_step' (the nearest known name is …)".
_OF_GIN = (
    *(AttributeError, ImportError, KeyError, NameError, OSError, TypeError, ValueError),
    tokenize.TokenError,
)


@contextlib.contextmanager
def one_sentence(flag: str) -> Iterator[None]:
    """Turn an exception of gin into a ValueError with the place and what to do.

    `flag` names the place of a mistake on the command line.
    """
    try:
        yield
    except SyntaxError as error:
        place = f"{error.filename}:{error.lineno}" if error.filename else flag
        raise ValueError(f"{place}: {_bad_syntax(error)}.") from error
    except RecursionError as error:
        raise ValueError(
            f"{flag}: the file includes itself, or a file that includes it: remove that include."
        ) from error
    except _OF_GIN as error:
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        found = re.search(r'\n  In (?:file "([^"]*)",|bindings string) line (\d+)\n *(.*)', message)
        core = " ".join((message[: found.start()] if found else message).split())
        file, line, source = found.groups() if found else (None, None, "")
        for pattern, explain in _EXPLANATIONS.items():
            if match := re.fullmatch(pattern, core):
                core = explain(file, source, *match.groups())
                break
        place = f"{file}:{line}" if file else flag
        raise ValueError(f"{place}: {core.rstrip('.')}.") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (the nearest known name is 'x')" for a message, or "" if none is similar."""
    found = difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.5)
    return f" (the nearest known name is {found[0]!r})" if found else ""


def _bad_syntax(error: SyntaxError) -> str:
    text = (error.text or "").strip()
    name, _, value = (part.strip() for part in text.partition("="))
    if "Failed to parse token" in error.msg or error.msg == "Expected newline.":
        quoted = f"{value.strip(chr(34) + chr(39))!r}"
        # On the command line the shell removes the outer quotes.
        right = f"{name} = {quoted}" if error.filename else f'--gin.{name}="{quoted}"'
        return (
            f"{text!r} is not a gin binding: a string needs quotes, as in {right}, and a name "
            "needs @ or %"
        )
    return f"{text!r} cannot be read: {' '.join(error.msg.split()).rstrip('.')}"


def _unknown_parameter(_file: str | None, _source: str, selector: str, parameter: str) -> str:
    known = parameters_of(selector)
    hint = nearest(parameter, known)
    return f"{selector} has no parameter {parameter!r}{hint}"


def _unknown_attribute(
    _file: str | None, _source: str, selector: str, owner: str, attribute: str
) -> str:
    path = re.match(r"<(?:module|class) '([^']+)'", owner)
    known = [name for name in dir(pydoc.locate(path[1])) if name[0] != "_"] if path else []
    parent = selector.rsplit(f".{attribute}", 1)[0]
    hint = nearest(attribute, known)
    return f"{parent} has no {attribute!r}{hint or _of_upstream(path[1] if path else '')}"


def _not_imported(file: str | None, _source: str, name: str) -> str:
    if importlib.util.find_spec(f"t5x.{name}"):
        return f"{name} is not imported by this file: add `from t5x import {name}`"
    text = Path(file).read_text() if file else ""
    imports = re.findall(r"^(?:from \S+ )?import (?:\S+ as )?(\w+)", text, re.MULTILINE)
    return f"{name} is not imported by this file{nearest(name, imports)}: import its module first"


def _unknown_configurable(_file: str | None, _source: str, selector: str) -> str:
    known = configurable_names()
    if "." not in selector:
        known = [name.rpartition(".")[2] for name in known]
    return (
        f"Nothing is called {selector!r}{nearest(selector, known)}: check the name, or import its "
        "module in a gin file"
    )


def _no_module(_file: str | None, source: str, module: str) -> str:
    wanted = re.match(r"(?:from (\S+) )?import (\S+)", source)
    path = ".".join(part for part in wanted.groups() if part) if wanted else module
    if not f"{path}.".startswith(f"{module}."):
        return f"{path} cannot be imported: it needs the module {module!r}, which is not installed"
    parent, _, name = module.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", []) if parent else None
    known = [found.name for found in pkgutil.iter_modules(folders)]
    return f"There is no module {module!r}{nearest(name, known) or _of_upstream(path)}"


def _no_file(_file: str | None, _source: str, file: str) -> str:
    folders = [Path(file).parent, *map(Path, search_paths())]
    found = [path.as_posix() for folder in folders for path in folder.glob("*.gin")]
    for folder in ("gin", "t5x"):
        found += [path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.gin")]
    close = difflib.get_close_matches(file, found, n=1, cutoff=0.5)
    hint = f"; the nearest one is {close[0]}" if close else ""
    return f"There is no file {file} here, in the search paths or in the repository{hint}"


def _of_upstream(module: str) -> str:
    page = "; docs/t5x_compatibility.md says what of upstream T5X is left out"
    return page if f"{module}.".startswith("t5x.") else ""


_EXPLANATIONS: dict[str, Callable[..., str]] = {
    r"Configurable '(.+)' doesn't have a parameter named '(.+)'\.": _unknown_parameter,
    r"Couldn't resolve selector (\S+); (.+) has no attribute (\w+)\.": _unknown_attribute,
    r"'(.+)' was not provided by an import statement\.": _not_imported,
    r"No configurable matching (?:reference )?'@?(?:.*/)?([^'()/]+)(?:\(\))?'.*": (
        _unknown_configurable
    ),
    r"No module named '(.+?)'.*": _no_module,
    r"Unable to open file: (.+)\. Searched config paths.*": _no_file,
}


# gin has no public way to look at what it has parsed. These functions are the only ones that touch
# its private names; gin-config is pinned to 0.5.0.

# In `_CONFIG` the macro STEPS is the parameter `value` of `gin.macro` in the scope "STEPS".
_MACRO = "gin.macro"


def add_search_paths(paths: Sequence[str]) -> None:
    """Add folders in which gin looks for files.

    gin's reader of packaged files is removed: it raises TypeError on folders that are no package.
    """
    readers = gin_config._FILE_READERS
    readers[:] = [r for r in readers if r[0] is not resource_reader.system_path_reader]
    new = [path for path in paths if path not in gin_config._LOCATION_PREFIXES]
    gin_config._LOCATION_PREFIXES.extend(new)


@contextlib.contextmanager
def skipping(ignores: Callable[[Any, str], bool]) -> Iterator[None]:
    """Drop the bindings of arguments for which `ignores(function, argument)` is True."""
    bind = gin_config.bind_parameter

    def bind_others(key: tuple[str, str, str], value: Any) -> None:
        _, selector, argument = key
        found = gin_config._parse_context().get_configurable(selector)
        if not (found and ignores(found.wrapped, argument)):
            bind(key, value)

    gin_config.bind_parameter = bind_others
    try:
        yield
    finally:
        gin_config.bind_parameter = bind


def search_paths() -> list[str]:
    """Return the folders in which gin looks for files, the current one left out."""
    return [path for path in gin_config._LOCATION_PREFIXES if path]


def import_lines() -> dict[str, str]:
    """Return the imports of all parsed files as {bound name: line}, `__gin__` first."""
    imports = {i.bound_name(): i.format() for i in gin_config._IMPORTS}
    return dict(sorted(imports.items(), key=lambda item: ("__gin__" not in item[1], item[1])))


def configurable_names() -> list[str]:
    """Return all registered names as `module.name`, the module without its package."""
    found = [configurable for _, configurable in gin_config._REGISTRY.items()]
    return [f"{c.module.rpartition('.')[2]}.{c.name}" for c in found]


def parameters_of(selector: str) -> list[str]:
    """Return the parameters of a configurable; none for an unknown one."""
    configurable = gin_config._REGISTRY.get_match(selector)
    return list(inspect.signature(configurable.wrapped).parameters) if configurable else []


def bound_parameters() -> dict[Any, set[str]]:
    """Return which parameters of each function or class are bound, in any scope."""
    bound: dict[Any, set[str]] = {}
    for (_, selector), values in gin_config._CONFIG.items():
        bound.setdefault(_function(selector), set()).update(values)
    return bound


def bound_values() -> Iterator[tuple[str, Any, Any, str]]:
    """Yield (what the user sets, value, configurable, parameter) for each parameter.

    Macros are replaced by their values. Raise ValueError for one that refers to itself.
    """
    for (scope, selector), values in gin_config._CONFIG.items():
        for parameter, value in values.items():
            if selector == _MACRO:
                _followed(scope, value)  # one that nothing uses, too
            else:
                name = f"{scope}/{selector}.{parameter}" if scope else f"{selector}.{parameter}"
                yield (*_followed(name, value), _function(selector), parameter)


def _followed(name: str, value: Any, seen: tuple[str, ...] = ()) -> tuple[str, Any]:
    """Return the macro that has the value, if any, and the value; inner macros are followed."""
    if isinstance(value, list | tuple):
        return name, type(value)(_followed(name, each, seen)[1] for each in value)
    if isinstance(value, dict):
        return name, {key: _followed(name, each, seen)[1] for key, each in value.items()}
    is_reference = isinstance(value, gin_config.ConfigurableReference)
    if not is_reference or value.configurable.wrapped is not gin_config.macro:
        return name, value
    macro_name = "/".join(value.scopes)
    if macro_name in seen:
        raise ValueError(
            f"{macro_name} refers to itself ({' = %'.join((*seen, macro_name))}): set it to a "
            "value."
        )
    bound = gin_config._CONFIG.get((macro_name, _MACRO), {})
    if "value" not in bound:
        return name, value
    return _followed(macro_name, bound["value"], (*seen, macro_name))


def macros_bound() -> set[str]:
    """Return the macros that are set, `%gin.REQUIRED` included."""
    return {scope for scope, selector in gin_config._CONFIG if selector == _MACRO}


def macros_used() -> set[str]:
    """Return the macros that something refers to."""
    references = gin_config.iterate_references(gin_config._CONFIG)
    used = (r for r in references if r.configurable.wrapped is gin_config.macro)
    return {"/".join(reference.scopes) for reference in used}


def drop_required_macro(name: str) -> bool:
    """Remove a macro that is `%gin.REQUIRED`; return whether it was."""
    required = _is_required(gin_config._CONFIG[name, _MACRO]["value"])
    if required:
        del gin_config._CONFIG[name, _MACRO]
    return required


def missing_values() -> list[str]:
    """Return used macros without a value and parameters still `%gin.REQUIRED`, sorted."""
    used, bound, required = macros_used(), macros_bound(), set()
    for (scope, selector), values in gin_config._CONFIG.items():
        for parameter, value in values.items():
            if _is_required(value):
                required.add(scope if selector == _MACRO else f"{selector}.{parameter}")
    return sorted((required - bound) | (required & used) | (used - bound))


def settings_of(wanted: Callable[[Any], bool]) -> dict[str, str]:
    """Return the bindings of each configurable `wanted` accepts, macros and references followed.

    settings_of(lambda function: function.__module__ == "t5x.decoding")
    # {"t5x.decoding.temperature_sample.topk": "40", …}, values as gin writes them
    """
    found: dict[str, str] = {}
    todo = [key for key in gin_config._CONFIG if wanted(_function(key[1]))]
    while todo:
        scope, selector = todo.pop()
        for parameter, value in gin_config._CONFIG[scope, selector].items():
            name = f"{scope}/{selector}.{parameter}" if scope else f"{selector}.{parameter}"
            name = scope if selector == _MACRO else name
            if name not in found:
                found[name] = repr(value)
                for reference in gin_config.iterate_references(value):
                    todo += _bindings_of(reference)
    return found


def _bindings_of(reference: gin_config.ConfigurableReference) -> list[tuple[str, str]]:
    """Return where a reference is bound: in its scopes, and in the scopes around them."""
    scopes, selector = reference.scopes, reference.configurable.selector
    around = ["/".join(scopes[:n]) for n in range(len(scopes) + 1)]
    return [(scope, selector) for scope in around if (scope, selector) in gin_config._CONFIG]


def _function(selector: str) -> Any:
    return gin_config._REGISTRY[selector].wrapped


def _is_required(value: Any) -> bool:
    return isinstance(value, gin_config.ConfigurableReference) and value.scopes == ["gin.REQUIRED"]
