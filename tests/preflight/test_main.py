"""A fault in one check stays in its row, gin's faults are sentences, and the status tells."""

import json
import os
import subprocess
import sys

import pytest

from fakes import valid_run
from fakes.paths import ROOT
from preflight import checklist, results
from preflight.aot import compiler as compiler_module
from preflight.aot import recipe, tpu_slices
from preflight.aot.recipe import Recipe
from preflight.results import FAILS, NOT_CHECKED, OK, NotChecked, judge, ok, warning

TINY = "gin/ro_t5x_tiny.gin"


@pytest.fixture(autouse=True)
def apart():
    with valid_run.gin_apart():
        yield


# --- rows


def raising(error):
    def check():
        raise error

    return judge("check", check)


def test_a_sentence_is_cut_into_what_is_wrong_and_what_to_set():
    row = raising(ValueError("x is 3, not a multiple of 2; set x to a multiple of 2."))
    assert (row.verdict, row.figure, row.to_set) == (
        FAILS,
        "x is 3, not a multiple of 2",
        "set x to a multiple of 2",
    )
    assert raising(ValueError("no cure.")).figure == "no cure"


def test_what_cannot_look_is_not_checked_and_neither_is_a_check_that_stops():
    assert raising(NotChecked("no network")).verdict == NOT_CHECKED
    row = raising(KeyError("lost"))
    assert row.verdict == NOT_CHECKED
    assert "KeyError" in row.figure


def test_only_what_fails_fails():
    rows = [judge(n, lambda r=r: r) for n, r in (("a", ok("1")), ("b", warning("2", "less")))]
    rows.append(raising(NotChecked("why")))
    assert results.passed(rows)
    assert not results.passed([*rows, raising(ValueError("no"))])
    assert results.count(rows) == "1 ok, 1 warning, 1 not checked"


def test_numbers_are_spelled():
    said = [results.many(n, "copy") for n in (1, 2, 3000)]
    assert said == ["1 copy", "2 copies", "3,000 copies"]
    assert results.many(2, "host") == "2 hosts"


def test_the_table_wraps_what_is_long():
    long = judge("memory", lambda: warning("word " * 40, "set " * 30))
    lines = results.table([long]).splitlines()
    assert max(map(len, lines)) <= 130
    assert lines[0].split() == ["check", "verdict", "figure", "what", "to", "set"]
    assert " ".join(lines).count("word") == 40


# --- gin


def gin_rows(*bindings, file=TINY):
    rows, run = checklist.of_gin(Recipe((file,), bindings))
    return {row.check: row for row in rows}, run


def test_a_recipe_without_fault_is_built():
    rows, run = gin_rows()
    assert {row.verdict for row in rows.values()} == {OK}
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
        (("utils.SaveCheckpointConfig.keep = 0",), "objects", "keep is 0"),
    ],
)
def test_a_planted_fault_of_gin_is_named_and_ends_the_rest(bindings, check, named):
    rows, run = gin_rows(*bindings)
    assert run is None
    assert rows[check].verdict == FAILS
    assert named in f"{rows[check].figure} {rows[check].to_set}"
    later = checklist.GIN[checklist.GIN.index(check) + 1 :]
    assert {rows[name].verdict for name in later} <= {NOT_CHECKED}


def test_a_file_that_is_not_there_leaves_everything_unchecked(monkeypatch):
    monkeypatch.setattr(checklist, "attempt", lambda *_: pytest.fail("nothing is to be compiled"))
    rows = checklist.inspect(Recipe(("gin/ro_t5x_tinny.gin",)), tpu_slices.find("v4-8"), say=str)
    assert rows[0].verdict == FAILS
    assert "ro_t5x_tiny.gin" in rows[0].figure
    assert {row.verdict for row in rows[1:]} == {NOT_CHECKED}
    names = [*checklist.GIN, *(name for name, _ in checklist.RUN), *checklist.STEP]
    assert [row.check for row in rows] == names


def test_one_recipe_after_another():
    assert recipe.load(Recipe((TINY,), ("TRAIN_STEPS = 7",))).total_steps == 7
    assert recipe.load(Recipe((TINY,))).total_steps == 300


# --- all of it


def test_a_crash_in_one_check_loses_no_other(monkeypatch, tmp_path):
    def crash(subject):
        raise RuntimeError("planted")

    checks = [(n, crash if n == "task" else check) for n, check in checklist.RUN]
    monkeypatch.setattr(checklist, "RUN", checks)

    def refuses(request, cache=None):
        raise compiler_module.CompileError("planted too")

    monkeypatch.setattr("preflight.search.trial.compile_step", refuses)
    bindings = (f"MODEL_DIR = '{tmp_path}'",)
    rows = checklist.inspect(Recipe((TINY,), bindings), tpu_slices.find("v4-8"), say=str)
    found = {row.check: row for row in rows}
    assert len(found) == len(rows) == len(checklist.GIN) + len(checks) + len(checklist.STEP)
    assert found["task"].verdict == NOT_CHECKED
    assert "planted" in found["task"].figure
    *of_the_step, decoding = checklist.STEP
    assert {found[name].verdict for name in of_the_step} == {NOT_CHECKED}
    assert (found[decoding].verdict, found[decoding].figure) == (OK, "nothing is decoded")
    others = {n: r.verdict for n, r in found.items() if n not in ("task", *checklist.STEP)}
    assert others.pop("epochs") == "warning"  # the mini corpus is small
    assert set(others.values()) == {OK}, others
    assert "<0>" in found["example"].text


def command(*flags):
    return subprocess.run(
        [sys.executable, "-m", "preflight", *flags],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_the_command_refuses_an_unknown_slice_and_names_the_nearest(capsys):
    from preflight.__main__ import main

    assert main(["--slice", "v4-9"]) == 2
    said = capsys.readouterr().err
    assert "'v4-9' is not a known TPU slice; set --slice to one like v4-8" in said
    with pytest.raises(SystemExit):
        main(["--gin_file", TINY])


def test_the_command_prints_a_table_and_tells_by_its_status(tmp_path):
    json_file = tmp_path / "out.json"
    done = command(
        *("--gin_file", TINY, "--slice", "v4-8", "--offline", "--json", str(json_file)),
        *("--gin.BATCH_SIZE=6", f"--gin.MODEL_DIR='{tmp_path}/run'", f"--cache={tmp_path}/cache"),
    )
    assert done.returncode == 1, done.stderr[-2000:]
    said = json.loads(json_file.read_text())["checks"]
    assert said["batch"]["verdict"] == FAILS
    assert "BATCH_SIZE to a multiple of 4" in said["batch"]["to_set"]
    assert said["partitions"]["verdict"] == OK
    # The trainer refuses the same.
    assert said["memory"]["verdict"] == FAILS
    assert "multiple of 4" in said["memory"]["figure"]
    assert said["speed"]["verdict"] == NOT_CHECKED
    assert "what to set" in done.stdout
    assert not (tmp_path / "run").exists()
