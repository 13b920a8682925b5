"""A subprocess compiles; its answers, errors and cached programs reach the caller."""

import dataclasses
import io
import json
import pathlib

import pytest

from common.errors import UserError
from fakes.refuses import refuses
from preflight.aot import compiler
from preflight.aot.compiler import CompileError, OutOfMemory, compile_step, error_of

# What the subprocess runs in place of a compiler: the program is the request's own.
ECHO = """
import json, os, sys
request = json.load(sys.stdin)
exec(request["program"])
"""
ANSWER = """
if "JAX_COMPILATION_CACHE_DIR" in os.environ:
    for name in ("jit_train_step-1", "jit_other-2"):
        open(os.path.join(os.environ["JAX_COMPILATION_CACHE_DIR"], name), "w").close()
names = ("cycles argument_gib parameter_gib optimizer_gib peak_gib temp_gib code_gib flops rows "
         "tokens compile_seconds trace_seconds").split()
print("a library's word")
print(json.dumps({**dict.fromkeys(names, 1), "collectives": {}, "costliest": []}))
"""


@dataclasses.dataclass(frozen=True)
class FakeRequest(compiler.Request):
    program: str


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Compile by running a program in the subprocess."""
    (tmp_path / "fake_compiler_process.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module = "fake_compiler_process"
    return lambda code, **rest: compile_step(FakeRequest("v4-8", code), module=module, **rest)


def test_an_unknown_slice_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(compiler.subprocess, "run", lambda *_, **__: pytest.fail("started"))
    with refuses("--slice", "v4-9"):
        compile_step(FakeRequest("v4-9", ""))


def test_figures_and_cached_programs_come_back(ask, tmp_path):
    figures = ask(ANSWER, cache=str(tmp_path / "cache"))
    assert (figures.rows, figures.cached) == (1, (str(tmp_path / "cache/jit_train_step-1"),))
    assert pathlib.Path(figures.cached[0]).exists()
    assert ask(ANSWER).cached == ()


@pytest.mark.parametrize(
    ("program", "kind", "fault"),
    [
        ("print(json.dumps({'refused': {'why': 'it is 6', 'to_set': 'a'}}))", UserError, "it is 6"),
        ("print(json.dumps({'error': 'a\\nb', 'arguments_gib': 1}))", CompileError, "a"),
        ("sys.exit('aborted')", CompileError, "status 1: aborted"),
        ("pass", CompileError, "status 0: no message"),
    ],
)
def test_errors_of_the_subprocess_are_raised(program, kind, fault, ask):
    with refuses(kind=kind) as refusal:
        ask(program)
    assert refusal.value.fault.endswith(fault)
    assert refusal.value.to_set == ("a" if kind is UserError else "")


def test_a_compiler_that_hangs_is_a_compile_error(ask):
    with refuses(kind=CompileError):
        ask("import time; time.sleep(60)", limit_s=0.2)


def test_the_subprocess_answers_as_json(monkeypatch, capsys):
    for error in (ValueError("no"), UserError(why="no", to_set="set x")):

        def refuse(request, error=error):
            assert request == {"x": 7}
            raise error

        monkeypatch.setattr("sys.stdin", io.StringIO('{"x": 7}'))
        compiler.serve(refuse)
        fields = json.loads(capsys.readouterr().out)["refused"]
        assert fields["why"] == "no"
        assert fields.get("to_set") == getattr(error, "to_set", None)


def test_both_out_of_memory_messages_are_parsed():
    early = (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (86.83G) exceeds available HBM (30.75G)."
    )
    found = error_of(early, 1.25)
    assert (found.used, found.limit, found.arguments) == (86.83, 30.75, 1.25)
    late = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 31.05G of 30.75G hbm. "
        "Exceeded hbm capacity by 307.20M.\n\nTotal hbm usage >= 31.30G:\n    reserved 263.00M"
    )
    found = error_of(late, 1.25)
    assert (found.used, found.limit) == (31.05, 30.75)
    assert not isinstance(error_of("INTERNAL: something else", 0), OutOfMemory)
