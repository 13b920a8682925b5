"""A door: flags and gin become one call of its main, after the other processes have joined."""

import sys
import types

import jax
import pytest
from absl import flags
from absl.testing import flagsaver

import gin
from t5x import gin_utils
from t5x.cli import main as command_line
from t5x.multihost import startup_check

TEXT = """from __gin__ import dynamic_registration
import __main__ as script
STEPS = 3
script.work.steps = %STEPS
script.work.folder = 'runs/x'
"""


@pytest.fixture(autouse=True)
def door(monkeypatch, tmp_path):
    """A door whose main notes its arguments, in an empty folder; gin and flags as new."""
    main = types.ModuleType("__main__")
    calls = []

    def work(*, steps, folder, dry_run=False):
        calls.append((steps, folder, dry_run))

    main.work = work
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr("gin.config._LOCATION_PREFIXES", [""])
    monkeypatch.setattr("gin.config._IMPORTS", set())
    for registry in ("_REGISTRY", "_INVERSE_REGISTRY"):
        monkeypatch.setattr(gin.config, registry, getattr(gin.config, registry).copy())
    monkeypatch.setattr(gin_utils, "run", lambda guarded: guarded([]))
    joined = lambda *args, heartbeat_timeout_seconds: calls.append(args)
    monkeypatch.setattr(jax.distributed, "initialize", joined)
    monkeypatch.setattr(command_line.startup_check, "wait_for_all", lambda *held: None)
    worker = lambda *given: startup_check.Worker("host:12", 4, 2)
    monkeypatch.setattr(command_line.startup_check, "find_worker", worker)
    monkeypatch.setattr(command_line, "on_tpu_machine", lambda: False)
    (tmp_path / "a.gin").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    gin.clear_config()
    yield work, calls
    gin.clear_config()


def opened(door, *arguments):
    work, calls = door
    with flagsaver.flagsaver():
        flags.FLAGS(["door", *arguments])
        command_line.run(work)
    return calls


def test_main_gets_its_bindings_and_later_ones_win(door):
    assert opened(door, "--gin_file=a.gin") == [(3, "runs/x", False)]


def test_the_command_line_wins_over_files(door):
    found = opened(door, "--gin_file=a.gin", "--gin_bindings=STEPS = 7")
    assert found == [(7, "runs/x", False)]


def test_files_are_looked_for_where_it_says(door, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.gin").rename(tmp_path / "deep" / "b.gin")
    found = opened(door, "--gin_file=b.gin", f"--gin_search_paths=none,{tmp_path}/deep")
    assert found == [(3, "runs/x", False)]


def test_a_dry_run_prints_what_would_hold_and_ends_well(door, capsys):
    with pytest.raises(SystemExit) as ended:
        opened(door, "--gin_file=a.gin", "--dry_run")
    assert ended.value.code == 0
    assert door[1] == [(3, "runs/x", True)]
    assert "STEPS = 3" in capsys.readouterr().out


def test_processes_join_before_main_begins(door, monkeypatch):
    where = ("--coordinator_address=host:12", "--process_count=4", "--process_index=2")
    assert opened(door, "--gin_file=a.gin", *where)[0] == ("host:12", 4, 2)
    door[1].clear()
    gin.clear_config()
    monkeypatch.setattr(command_line, "on_tpu_machine", lambda: True)
    assert opened(door, "--gin_file=a.gin")[0] == (None, None, None)


def test_processes_join_after_all_have_reported_the_same(door, monkeypatch):
    """With what gin has parsed; and one who is refused does not wait for the others in JAX."""
    held = []

    def wait_for_all(worker, facts, seconds):
        held.append((worker, facts["gin STEPS"], seconds))
        raise ValueError("another commit")

    monkeypatch.setattr(command_line.startup_check, "wait_for_all", wait_for_all)
    with pytest.raises(ValueError, match="another commit"):
        opened(door, "--gin_file=a.gin", "--coordinator_address=host:12", "--roll_call_seconds=7")
    assert held == [(startup_check.Worker("host:12", 4, 2), "3", 7.0)]
    assert door[1] == []


def test_in_a_pod_a_process_that_fails_leaves_at_once_and_waits_for_no_other(door, monkeypatch):
    left = []
    monkeypatch.setattr(command_line.log_capture, "exit_now", left.append)

    def no_room(*_):
        raise OSError("its traceback cannot be written either")

    monkeypatch.setattr(sys, "excepthook", no_room)
    for pod, wanted in ((False, []), (True, [2, 1])):
        monkeypatch.setattr(jax.distributed, "is_initialized", lambda pod=pod: pod)
        for end in (SystemExit(2), OSError("disk"), SystemExit(0), SystemExit(None)):
            monkeypatch.setattr(gin_utils, "run", lambda _, end=end: (_ for _ in ()).throw(end))
            with pytest.raises(type(end)):
                opened(door, "--gin_file=a.gin")
        assert left == wanted


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
def test_a_tpu_machine_is_told_by_its_chips(
    monkeypatch, tmp_path, platforms, found, vendor, is_one
):
    monkeypatch.undo()
    (tmp_path / "vendor").write_text(vendor or "")
    devices = {"/sys": [str(tmp_path / "vendor")]}

    def glob(pattern):
        stem = pattern.partition("[")[0]
        return devices.get(pattern[:4], [p for p in found if p.startswith(stem)])

    monkeypatch.setattr(command_line.glob, "glob", glob)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    if platforms:
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
    assert command_line.on_tpu_machine() is is_one


def test_bad_input_is_refused_before_anybody_joins(door):
    with pytest.raises(ValueError, match=r"a.gni"):
        opened(door, "--gin_file=a.gni", "--coordinator_address=host:12")
    assert door[1] == []


def test_a_run_that_a_notice_has_ended_may_have_a_status_of_its_own(door, monkeypatch):
    monkeypatch.setattr(command_line.Interruption, "ended_one", True)
    with pytest.raises(SystemExit) as ended:
        opened(door, "--gin_file=a.gin", "--interrupted_status=75")
    assert ended.value.code == 75


@pytest.mark.parametrize("given", [{"process_count": 2}, {"process_index": 1}])
def test_a_number_of_processes_without_an_address_is_refused(given):
    values = {"process_count": None, "process_index": None, "coordinator_address": None, **given}
    with pytest.raises(ValueError, match=r"need --coordinator_address=HOST:PORT of process 0"):
        command_line.join_others(types.SimpleNamespace(**values, roll_call_seconds=1))
