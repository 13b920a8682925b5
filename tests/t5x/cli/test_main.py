"""Flags and gin become one call of main, after the other processes have joined."""

import subprocess
import sys
import types

import jax
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver
from etils import epath

import gin
from common.errors import UserError
from fakes import valid_run
from fakes.paths import ROOT
from fakes.refuses import refuses
from t5x import gin_utils
from t5x.cli import main as cli
from t5x.multihost.worker import Worker

RUN = gin_utils.run
TEXT = """from __gin__ import dynamic_registration
import __main__ as script
STEPS = 3
script.work.steps = %STEPS
script.work.folder = 'runs/x'
"""


@pytest.fixture(autouse=True)
def entry_point(monkeypatch, tmp_path):
    """A main that records its arguments, in an empty folder; gin and flags cleared."""
    main = types.ModuleType("__main__")
    calls = []

    def work(*, steps, folder, dry_run=False):
        calls.append((steps, folder, dry_run))
        if folder == "refused":
            print("the table")
            raise UserError("targets cannot be written")

    work.__module__, work.__qualname__ = "__main__", "work"  # as a function of a script has
    main.work = work
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(gin_utils, "run", lambda guarded, _: guarded([]))
    joined = lambda *args, heartbeat_timeout_seconds: calls.append(args)
    monkeypatch.setattr(jax.distributed, "initialize", joined)
    monkeypatch.setattr(cli.roll_call, "wait_for_all", lambda *held: None)
    monkeypatch.setattr(cli, "find_worker", lambda *given: Worker("host:12", 4, 2))
    monkeypatch.setattr(cli, "is_tpu_machine", lambda: False)
    (tmp_path / "a.gin").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    with valid_run.gin_apart():
        yield work, calls


def run(entry_point, *arguments):
    work, calls = entry_point
    with flagsaver.flagsaver():
        flags.FLAGS(["entry_point", *arguments])
        cli.run(work)
    return calls


@pytest.mark.parametrize(("flags", "steps"), [([], 3), (["--gin_bindings=STEPS = 7"], 7)])
def test_main_gets_its_bindings_and_the_command_line_wins(entry_point, flags, steps):
    assert run(entry_point, "--gin_file=a.gin", *flags) == [(steps, "runs/x", False)]


@pytest.mark.parametrize("flags", [[], ["--print_config"]], ids=str)
def test_a_dry_run_succeeds_and_prints_the_configuration_on_request(entry_point, capsys, flags):
    run(entry_point, "--gin_file=a.gin", "--dry_run", *flags)
    assert entry_point[1] == [(3, "runs/x", True)]
    assert ("STEPS = 3" in capsys.readouterr().out) == bool(flags)


def test_a_dry_run_that_refuses_prints_its_table_too(entry_point, capsys):
    with pytest.raises(UserError, match="targets"):
        run(entry_point, "--gin_file=a.gin", "--gin_bindings=work.folder = 'refused'", "--dry_run")
    assert "the table" in capsys.readouterr().out


def test_the_configuration_is_printed_by_a_dry_run_only(entry_point):
    with refuses("--print_config"):
        run(entry_point, "--gin_file=a.gin", "--print_config")


def test_tensorflow_reads_buckets_whatever_the_shell_says(entry_point, monkeypatch):
    """A save of a data position failed with `export EPATH_USE_TF=false`."""
    monkeypatch.setenv("EPATH_USE_TF", "false")
    monkeypatch.setattr(tf.io.gfile, "exists", lambda path: path == "gs://bucket/run")
    run(entry_point, "--gin_file=a.gin")
    assert epath.Path("gs://bucket/run").exists()


def test_processes_join_before_main_begins(entry_point, monkeypatch):
    where = ("--coordinator_address=host:12", "--process_count=4", "--process_index=2")
    assert run(entry_point, "--gin_file=a.gin", *where)[0] == ("host:12", 4, 2)
    entry_point[1].clear()
    gin.clear_config()
    monkeypatch.setattr(cli, "is_tpu_machine", lambda: True)
    assert run(entry_point, "--gin_file=a.gin")[0] == (None, None, None)


def test_processes_join_after_all_have_reported_the_same(entry_point, monkeypatch):
    """The facts include gin's bindings; a refused process does not wait for the others in JAX."""
    held = []

    def wait_for_all(worker, facts, seconds):
        held.append((worker, facts["gin STEPS"], seconds))
        raise ValueError("another commit")

    monkeypatch.setattr(cli.roll_call, "wait_for_all", wait_for_all)
    with pytest.raises(ValueError, match="another commit"):
        run(
            entry_point,
            "--gin_file=a.gin",
            "--coordinator_address=host:12",
            "--roll_call_seconds=7",
        )
    assert held == [(Worker("host:12", 4, 2), "3", 7.0)]
    assert entry_point[1] == []


def test_in_a_pod_a_process_that_fails_exits_at_once(entry_point, monkeypatch):
    left = []
    monkeypatch.setattr(cli.log, "exit_now", left.append)
    monkeypatch.setattr(cli.AsyncSave, "abandoned", False)  # whatever ran before

    for pod, wanted in ((False, []), (True, [2, 1])):
        monkeypatch.setattr(jax.distributed, "is_initialized", lambda pod=pod: pod)
        for end in (SystemExit(2), OSError("disk"), SystemExit(0), SystemExit(None)):
            monkeypatch.setattr(gin_utils, "run", lambda *_, end=end: (_ for _ in ()).throw(end))
            with pytest.raises(type(end)):
                run(entry_point, "--gin_file=a.gin")
        assert left == wanted


def test_ctrl_c_ends_a_command_in_one_sentence(entry_point, monkeypatch, capsys):
    left = []
    monkeypatch.setattr(cli.log, "exit_now", left.append)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "join_others", interrupt)
    monkeypatch.setattr(gin_utils, "run", RUN)
    monkeypatch.setattr(gin_utils.app, "run", lambda main, flags_parser: main([]))
    with pytest.raises(SystemExit):
        run(entry_point, "--gin_file=a.gin")
    said = capsys.readouterr().err
    assert said.startswith("Stopped by Ctrl-C")
    assert "the same command" in said
    assert said.count("\n") == 1
    assert left == [130]


@pytest.mark.parametrize(
    ("platforms", "found", "vendor", "is_one"),
    [
        (None, ["/dev/accel0"], None, True),
        ("tpu,cpu", ["/dev/vfio/0"], "0x1ae0\n", True),
        (None, ["/dev/vfio/0"], "0x10de\n", False),
        (None, [], "0x1ae0\n", False),
        ("cpu", ["/dev/accel0"], None, False),
    ],
)
def test_a_tpu_machine_is_recognized_by_its_chips(
    monkeypatch, tmp_path, platforms, found, vendor, is_one
):
    monkeypatch.undo()
    (tmp_path / "vendor").write_text(vendor or "")
    devices = {"/sys": [str(tmp_path / "vendor")]}

    def glob(pattern):
        stem = pattern.partition("[")[0]
        return devices.get(pattern[:4], [p for p in found if p.startswith(stem)])

    monkeypatch.setattr(cli.glob, "glob", glob)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    if platforms:
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
    assert cli.is_tpu_machine() is is_one


def test_bad_input_is_refused_before_any_process_joins(entry_point):
    with refuses(where="--gin_file=a.gni"):
        run(entry_point, "--gin_file=a.gni", "--coordinator_address=host:12")
    assert entry_point[1] == []


def test_a_preempted_run_may_have_its_own_exit_status(entry_point, monkeypatch):
    monkeypatch.setattr(cli.Interruption, "ended_one", True)
    with pytest.raises(SystemExit) as ended:
        run(entry_point, "--gin_file=a.gin", "--interrupted_status=75")
    assert ended.value.code == 75


# Each end in a fork of a process that has imported the libraries, which takes seconds.
HANGS = """
import concurrent.futures, os, sys, threading, time
from t5x import gin_utils
import clu.metric_writers, seqio
from t5x.checkpointing.async_save import AsyncSave
from t5x.checkpoints import SaveError
from common import log
from t5x.cli import main

def error():
    raise SaveError("it hangs")

def status():
    hang = lambda: time.sleep(1000)
    try:
        AsyncSave("save", hang, hang, 0.1).wait()
    except TimeoutError:
        sys.exit(0)

def end_with(end):
    log.start()

    def hang(*_):
        concurrent.futures.ThreadPoolExecutor(1).submit(time.sleep, 1000)
        threading.Thread(target=time.sleep, args=(1000,)).start()
        end()

    gin_utils.run = lambda guarded, parse: main.gin_utils.errors.guarded(hang)()
    main.run(hang)

for end in (error, status):
    if not (child := os.fork()):
        end_with(end)
    print(end.__name__, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_no_end_waits_for_a_thread_that_hangs():
    command = [sys.executable, "-c", HANGS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert ended.stdout.splitlines() == ["error 1", "status 0"], ended.stderr
    assert "it hangs" in ended.stderr
