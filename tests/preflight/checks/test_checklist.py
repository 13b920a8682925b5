"""Every check gives a result, whatever happens in another; faults in gin files are named."""

import pytest

from common.tables import FAILS, NOT_CHECKED, OK
from preflight.aot import compiler, slices
from preflight.aot.recipe import Recipe
from preflight.checks import checklist

pytestmark = pytest.mark.usefixtures("gin_apart")
TINY = "gin/ro_t5x_tiny.gin"


def gin_rows(*bindings, file=TINY):
    rows, run = checklist.check_gin(Recipe((file,), bindings))
    return {row.check: row for row in rows}, run


def test_a_valid_recipe_is_built():
    rows, run = gin_rows()
    assert {row.verdict for row in rows.values()} == {OK}
    assert f"{TINY} and its includes: every name is known" in rows["gin parses"].figure
    assert run.model_dir == "runs/ro_t5x_tiny"
    assert (run.train_dataset_cfg.batch_size, run.total_steps) == (16, 300)
    assert run.model.module.config.vocab_size == 2048
    assert run.dry_run is False  # the trainer's own default


@pytest.mark.parametrize(
    ("bindings", "check", "named"),
    [
        (("network.T5Config.emb_dimm = 8",), "gin parses", "emb_dim"),
        (("train_script.train.total_step = 8",), "gin parses", "total_steps"),
        (("TRAIN_STEPS = many",), "gin parses", "TRAIN_STEPS"),
        (("TRAIN_STEPS = %NOT_THERE",), "all is set", "NOT_THERE"),
        (("TRAIN_STEP = 8",), "all is set", "TRAIN_STEPS"),
        (("utils.SaveCheckpointConfig.keep = 0",), "all is set", "keep"),
        (("utils.SaveCheckpointConfig.keep_best = 1",), "objects", "metric"),
    ],
)
def test_a_fault_in_gin_is_named_and_later_checks_are_not_made(bindings, check, named):
    rows, run = gin_rows(*bindings)
    assert run is None
    assert rows[check].verdict == FAILS
    assert named in f"{rows[check].figure} {rows[check].to_set}"
    later = checklist.GIN[checklist.GIN.index(check) + 1 :]
    assert {rows[name].verdict for name in later} <= {NOT_CHECKED}


def test_a_missing_file_leaves_everything_unchecked(monkeypatch):
    monkeypatch.setattr(
        checklist, "compile_trial", lambda *_: pytest.fail("nothing is to be compiled")
    )
    rows = checklist.check_recipe(Recipe(("gin/ro_t5x_tinny.gin",)), slices.find("v4-8"), say=str)
    assert rows[0].verdict == FAILS
    assert "ro_t5x_tiny.gin" in rows[0].figure
    assert {row.verdict for row in rows[1:]} == {NOT_CHECKED}
    assert tuple(row.check for row in rows) == checklist.NAMES


def test_a_crash_in_one_check_leaves_the_others(monkeypatch, tmp_path):
    def crash(context):
        raise RuntimeError("planted")

    checks = [(n, crash if n == "task" else check) for n, check in checklist.RUN]
    monkeypatch.setattr(checklist, "RUN", checks)

    def refuses(request, cache=None):
        raise compiler.CompileError("planted too")

    monkeypatch.setattr("preflight.search.compile_step", refuses)
    bindings = (f"MODEL_DIR = '{tmp_path}'",)
    rows = checklist.check_recipe(Recipe((TINY,), bindings), slices.find("v4-8"), say=str)
    found = {row.check: row for row in rows}
    assert tuple(row.check for row in rows) == checklist.NAMES
    assert found["task"].verdict == NOT_CHECKED
    assert "planted" in found["task"].figure
    of_the_step = ("memory", *dict(checklist.STEP))
    assert {found[name].verdict for name in of_the_step} == {NOT_CHECKED}
    assert found["decoding"].figure == "nothing is decoded"
    others = {n: r.verdict for n, r in found.items() if n not in ("task", *of_the_step)}
    assert others.pop("epochs") == "warning"  # the mini corpus is small
    assert set(others.values()) == {OK}, others
    assert "<0>" in found["example"].text
