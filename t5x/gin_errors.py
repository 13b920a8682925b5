"""What went wrong with gin, in one sentence.

  with one_sentence("--gin_file=a.gin"):
      gin.parse_config_file("a.gin")
  # ValueError: a.gin:3: train has no parameter 'total_step' (the nearest known name is …).

gin-config tells of a mistake by whatever exception came by (AttributeError, NameError,
ImportError, OSError, SyntaxError, KeyError, ValueError) and appends its place in lines of its own.
"""

import contextlib
import difflib
import importlib.util
import inspect
import pathlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

# gin has no public way to look at what it parsed; gin-config is pinned to 0.5.0.
from gin import config as gin_config

ROOT = pathlib.Path(__file__).resolve().parent.parent
_ORBAX = "leave it out: checkpoints are saved by Orbax and both kinds are read"
_ENCODER_DECODER = "use models.EncoderDecoderModel"
LEFT_OUT = {
    "BaseTransformerModel": _ENCODER_DECODER,
    "DecoderOnlyModel": _ENCODER_DECODER,
    "EncoderOnlyModel": _ENCODER_DECODER,
    "decoder_only": _ENCODER_DECODER,
    "flax_mutables": "use a network whose only variables are its parameters",
    "WeightMetricsComputer": "leave the binding out",
    "HParamMap": "use adafactor.Adafactor.logical_factor_rules",
    "MultiOptimizer": "use one optimizer, adafactor.Adafactor or optimizers.chain",
    "ModelBasedPjitPartitioner": "use partitioning.PjitPartitioner",
    "BasePjitPartitioner": "use partitioning.PjitPartitioner",
    "MoePjitPartitioner": "use partitioning.PjitPartitioner with a dense model",
    "MoeTrainer": "use trainer.Trainer with a dense model",
    "moe": "use a dense model",
    "calm": "use t5x.examples.t5.network",
    "scalable_t5": "use t5x.examples.t5.network, which scans its layers; see T5Config.remat_policy",
    "contrib": "use what t5x itself has, or run T5X with T5X_DIR",
    "fiddle": "write the configuration in gin",
    "config_utils": "write the configuration in gin",
    "airio": "use a seqio task or mixture",
    "Checkpointer": _ORBAX,
    "LegacyCheckpointer": _ORBAX,
    "SaveBestCheckpointer": _ORBAX,
    "CheckpointManagerConstructor": _ORBAX,
    "LegacyCheckpointManager": _ORBAX,
    "BestCheckpointManager": _ORBAX,
    "restore_tf_checkpoint": "use the same model's checkpoint under gs://t5-data/pretrained_models/t5x",
    "t5": "register the tasks that you need with seqio, as the modules of tasks/ do",
    "mesh_tensorflow": "use t5x.examples.t5.network",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """Names the known name most like `name`, to be put right behind it in a message.

    Returns:
      " (the nearest known name is 'x')", or "" where nothing is alike.
    """
    found = difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.5)
    return f" (the nearest known name is {found[0]!r})" if found else ""


class Place(NamedTuple):
    """Where gin stood: `file` is None on the command line."""

    file: str | None
    source: str


_PLACE = re.compile(r'\n  In (?:file "([^"]*)",|bindings string) line (\d+)\n *(.*)')


@contextlib.contextmanager
def one_sentence(flag: str) -> Iterator[None]:
    """Turns every exception of gin into a ValueError that says where and what to do."""
    try:
        yield
    except Exception as error:
        if isinstance(error, SyntaxError):
            place = f"{error.filename}:{error.lineno}" if error.filename else flag
            raise ValueError(f"{place}: {_bad_syntax(error)}") from error
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        found = _PLACE.search(message)
        core = message[: found.start()] if found else message
        file, line, source = found.groups() if found else (None, None, "")
        place = f"{file}:{line}" if file else flag
        core = " ".join(core.split())
        for pattern, sentence in _SENTENCES.items():
            if match := re.fullmatch(pattern, core):
                core = sentence(*match.groups(), Place(file, source))
                break
        raise ValueError(f"{place}: {core.rstrip('.')}.") from error


def _bad_syntax(error: SyntaxError) -> str:
    text = (error.text or "").strip()
    name, _, value = (part.strip() for part in text.partition("="))
    if "Failed to parse token" in error.msg or error.msg == "Expected newline.":
        quoted = f"{value.strip(chr(34) + chr(39))!r}"
        # On the command line the shell takes the outer quotes away.
        right = f"{name} = {quoted}" if error.filename else f'--gin.{name}="{quoted}"'
        return (
            f"{text!r} gives no gin value: a text needs quotes, as in {right}, and a name "
            "needs @ or %."
        )
    return f"{text!r} cannot be read: {' '.join(error.msg.split())}"


def _left_out(path: str) -> str | None:
    root, *inner = path.split(".")
    for name in [*reversed(inner), root]:
        # t5 is a package of its own, and a folder of this one.
        if name in LEFT_OUT and (name != "t5" or name == root):
            return f"{path} is not part of this trainer: {LEFT_OUT[name]}"
    return None


def _unknown_parameter(selector: str, parameter: str, at: Place) -> str:
    if parameter in LEFT_OUT:
        return _left_out(parameter)
    configurable = gin_config._REGISTRY.get_match(selector)
    known = inspect.signature(configurable.wrapped).parameters if configurable else ()
    return f"{selector} has no parameter {parameter!r}{nearest(parameter, known)}"


def _unknown_attribute(selector: str, owner: str, attribute: str, at: Place) -> str:
    if sentence := _left_out(selector):
        return sentence
    names = re.match(r"<(?:module|class) '([^']+)'", owner)
    thing: Any = None
    if names:
        module, _, inner = names[1].rpartition(".") if owner[1] == "c" else (names[1], "", "")
        thing = sys.modules.get(module)
        thing = getattr(thing, inner, None) if inner else thing
    known = [name for name in dir(thing) if not name.startswith("_")]
    parent = selector.rsplit(f".{attribute}", 1)[0]
    return f"{parent} has no {attribute!r}{nearest(attribute, known)}"


def _not_imported(name: str, at: Place) -> str:
    if name in LEFT_OUT:
        return _left_out(name)
    if importlib.util.find_spec(f"t5x.{name}"):
        return f"{name} is not imported by this file: add `from t5x import {name}`"
    text = pathlib.Path(at.file).read_text() if at.file else ""
    names = re.findall(r"^(?:from \S+ )?import (?:\S+ as )?(\S+)", text, re.MULTILINE)
    known = [bound.partition(".")[0] for bound in names]
    return f"{name} is not imported by this file{nearest(name, known)}: import its module first"


def _unknown_configurable(selector: str, at: Place) -> str:
    if sentence := _left_out(selector):
        return sentence
    everything = [found for _, found in gin_config._REGISTRY.items()]
    known = [f"{c.module.rpartition('.')[2]}.{c.name}" for c in everything]
    bare = [name.rpartition(".")[2] for name in known]
    hint = nearest(selector, known if "." in selector else bare)
    return (
        f"Nothing is called {selector!r}{hint}: check the name, or import its module in a gin file"
    )


def _no_module(module: str, at: Place) -> str:
    wanted = re.match(r"(?:from (\S+) )?import (\S+)", at.source)
    path = ".".join(part for part in wanted.groups() if part) if wanted else module
    if not (path + ".").startswith(module + "."):
        return f"{path} cannot be imported: it needs the module {module!r}, which is not installed"
    if sentence := _left_out(path):
        return sentence
    parent, _, name = module.rpartition(".")
    folders = getattr(sys.modules[parent], "__path__", []) if parent in sys.modules else None
    known = [found.name for found in pkgutil.iter_modules(folders)]
    return f"There is no module {module!r}{nearest(name, known)}"


def _no_file(file: str, at: Place) -> str:
    prefixes = [pathlib.Path(prefix) for prefix in gin_config._LOCATION_PREFIXES if prefix]
    found = [path.relative_to(p) for p in prefixes for path in p.glob("*.gin")]
    for folder in ("gin", "t5x"):
        found += [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.gin")]
    beside = [path.as_posix() for path in pathlib.Path(file).parent.glob("*.gin")]
    known = [path.as_posix() for path in found] + beside
    close = difflib.get_close_matches(file, known, n=1, cutoff=0.5)
    hint = f"; the nearest one is {close[0]}" if close else ""
    return f"There is no file {file} here, in the search paths or in the repository{hint}"


_SENTENCES: Mapping[str, Callable[..., str]] = {
    r"Configurable '(.+)' doesn't have a parameter named '(.+)'\.": _unknown_parameter,
    r"Couldn't resolve selector (\S+); (.+) has no attribute (\w+)\.": _unknown_attribute,
    r"'(.+)' was not provided by an import statement\.": _not_imported,
    r"No configurable matching (?:reference )?'@?(?:.*/)?([^'()/]+)(?:\(\))?'.*": (
        _unknown_configurable
    ),
    r"No module named '(.+?)'.*": _no_module,
    r"Unable to open file: (.+)\. Searched config paths.*": _no_file,
}
