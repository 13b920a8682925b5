"""Upstream's functions have upstream's arguments here, or ignore them with a warning."""

import enum
import importlib
import inspect
import json
import re

import pytest

import gin
from fakes import valid_run
from fakes.paths import GOLDEN, ROOT
from t5x import gin_utils, models, partitioning
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.decoding import beam_search
from t5x.eval import evaluate
from t5x.infer import infer
from t5x.input_pipeline.config import DatasetConfig
from t5x.precompile import precompile
from t5x.settings import upstream_names
from t5x.settings.upstream_names import ignores
from t5x.train import train
from t5x.trainer import Trainer
from t5x.utils import RestoreCheckpointConfig

GOLDEN_NAMES = json.loads((GOLDEN / "upstream_names.json").read_text())
NAMES, PUBLIC = GOLDEN_NAMES["names"], GOLDEN_NAMES["public"]
LEFT_OUT = {"weight_metrics_computer", "hyper_params"}
OURS = (
    *(train, evaluate, infer, precompile, DatasetConfig, SaveCheckpointConfig, beam_search),
    *(Trainer, RestoreCheckpointConfig, partitioning.PjitPartitioner),
)


@pytest.fixture(autouse=True)
def cleared():
    """Nothing bound and nothing warned of."""
    upstream_names._warn.cache_clear()
    with valid_run.gin_apart():
        yield


def parse(tmp_path, *lines):
    file = tmp_path / "a.gin"
    file.write_text("\n".join(["from __gin__ import dynamic_registration", *lines, ""]))
    gin_utils.parse_gin_flags([], [str(file)], [], finalize_config=False)


def find(module, name):
    found = importlib.import_module(f"t5x.{module}")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


@pytest.mark.parametrize("module", NAMES)
def test_every_argument_of_upstream_is_here_or_ignored_or_listed_as_left_out(module):
    for name, arguments in NAMES[module].items():
        here = find(module, name)
        known = set(inspect.signature(here).parameters)
        if isinstance(here, enum.EnumType):  # Python 3.12 shows its members' values instead
            known |= {"value", "names", "module", "qualname", "type", "start", "boundary"}
        for argument in set(arguments) - LEFT_OUT:
            assert argument in known or ignores(here, argument), f"{name} lacks {argument}"


def test_arguments_keep_upstreams_order():
    """Those that may be given by position."""
    for module, name in (
        ("models", "EncoderDecoderModel"),
        ("models", "EncoderDecoderModel.predict_batch_with_aux"),
        ("partitioning", "PjitPartitioner"),
        ("partitioning", "standard_logical_axis_rules"),
        ("infer", "write_inferences_to_file"),
        ("utils", "create_learning_rate_scheduler"),
    ):
        known = list(inspect.signature(find(module, name)).parameters)
        known = known[known[0] == "self" :]
        theirs = [argument for argument in NAMES[module][name] if argument in known]
        assert known[: len(theirs)] == theirs, name


def test_ignored_names_are_none_that_a_function_has():
    assert {function.__qualname__ for function in OURS} == set(upstream_names.IGNORED)
    for function in OURS:
        known = inspect.signature(function).parameters
        assert not set(upstream_names.IGNORED[function.__qualname__]) & set(known)


def test_an_ignored_argument_is_warned_of_once_and_never_passed(tmp_path, caplog):
    line = "utils.DatasetConfig.num_prefetch_threads = 3"
    given = ("task", None, "train", 8, False, 0)
    parse(
        tmp_path, "from t5x import utils", line, f"train/{line}", "utils.DatasetConfig.pack = True"
    )
    parse(tmp_path, "from t5x import utils", line)
    assert gin.get_configurable(DatasetConfig)(*given) == DatasetConfig(*given, pack=True)
    assert caplog.messages == [
        "DatasetConfig.num_prefetch_threads is ignored: upstream T5X reads no seqio task by it "
        "either."
    ]
    assert "num_prefetch_threads" not in gin.config_str()


def test_an_ignored_name_is_none_of_another_function(tmp_path):
    with pytest.raises(ValueError, match=r"use_orbax"):
        parse(tmp_path, "from t5x import models", "models.EncoderDecoderModel.use_orbax = True")
    assert ignores(train, "use_orbax")
    assert not ignores(train, "use_orbit")
    assert not ignores(json.dumps, "use_orbax")


def test_an_argument_that_a_derived_class_has_is_passed():
    def construct(self, num_prefetch_threads):
        self.threads = num_prefetch_threads

    derived = type("DatasetConfig", (), {"__init__": construct, "__module__": "__main__"})
    assert not ignores(derived, "num_prefetch_threads")
    assert ignores(derived, "num_workers")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from t5x import export_lib", "'t5x.export_lib'"),
        ("from t5x.contrib.moe import models", "'t5x.contrib'"),
        ("from t5x import models\nX = @models.DecoderOnlyModel()", "'DecoderOnlyModel'"),
        ("from t5x import optimizers\nX = @optimizers.lion()", "'lion'"),
        ("from t5x import trainer\ntrainer.Trainer.flax_mutables = 1", "'flax_mutables'"),
        ("import airio", "'airio'"),
    ],
)
def test_a_name_that_is_left_out_is_refused_by_name(line, name, tmp_path):
    with pytest.raises(ValueError, match=name) as caught:
        parse(tmp_path, line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("module", PUBLIC)
def test_a_gin_file_with_another_public_name_of_upstream_leads_to_the_page(module, tmp_path):
    here = importlib.import_module(f"t5x.{module}")
    package, _, last = here.__name__.rpartition(".")
    for name in sorted(set(PUBLIC[module].split()) - vars(here).keys()):
        with pytest.raises(ValueError, match=rf"{last} has no '{name}'.*(nearest|t5x_compat)"):
            parse(tmp_path, f"from {package} import {last}\nX = @{last}.{name}()")


def test_a_module_that_imports_what_is_left_out_is_refused_with_that_name(tmp_path, monkeypatch):
    (tmp_path / "of_a_user.py").write_text("from t5x.losses import cross_entropy_with_logits")
    monkeypatch.syspath_prepend(tmp_path)
    match = r"of_a_user .*'cross_entropy_with_logits'.*t5x_compatibility"
    with pytest.raises(ValueError, match=match):
        parse(tmp_path, "import of_a_user")


def test_a_default_that_upstream_sets_on_the_model_is_used():
    assert models.DecoderParams() == models.DecoderParams(return_all_decodes=False, num_decodes=1)


def test_the_page_lists_what_is_ignored_with_its_reason():
    lines = (ROOT / "docs/t5x_compatibility.md").read_text().splitlines()
    rows = {tuple(re.findall(r"`([^`]+)`", line)): line for line in lines if line.startswith("| `")}
    for owner, arguments in upstream_names.IGNORED.items():
        for argument, reason in arguments.items():
            assert any(
                names[0] == owner and argument in names and line.endswith(f" | {reason} |")
                for names, line in rows.items()
            ), (owner, argument)
