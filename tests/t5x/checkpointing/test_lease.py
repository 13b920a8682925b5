"""One run at a time holds MODEL_DIR, on a disk and in a bucket; a dead one is replaced."""

import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from fakes import damage, toy
from fakes.paths import ROOT
from fakes.refuses import refuses
from t5x.checkpointing import layout
from t5x.checkpointing import lease as module
from t5x.checkpointing.lease import Lease, LeaseError


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.05)


def put(folder, content):
    """Write a lease as runs do: a new file, as the clock of files may tick each 4 ms only."""
    (folder / "new").write_bytes(content)
    (folder / "new").replace(folder / module.NAME)


def hold(folder, **changes):
    """Write the lease of a run on another machine."""
    lease = {"run": "x", "holder": "process 12 on far"}
    put(folder, json.dumps(lease | changes).encode())


def seconds_to_take(folder):
    begun = time.monotonic()
    with Lease(str(folder)) as lease:
        lease.check()
    return time.monotonic() - begun


def test_one_run_holds_it_and_releases_it(tmp_path):
    folder = tmp_path / "run"
    with Lease(str(folder)) as lease:
        lease.check()
        with refuses("MODEL_DIR", str(folder), kind=LeaseError) as refused, Lease(str(folder)):
            pass
        assert f"(process {os.getpid()} on " in refused.value.why
        assert "--take_over" in refused.value.to_set
        lease.check()
    assert os.listdir(folder) == []
    with pytest.raises(KeyboardInterrupt), Lease(str(folder)):
        raise KeyboardInterrupt
    assert os.listdir(folder) == []


def test_of_runs_that_start_at_once_one_gets_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STALE_SECONDS", 1.0)
    hold(tmp_path)  # which all watch
    begin, end = threading.Barrier(8), threading.Event()

    def run(_):
        begin.wait()
        with Lease(str(tmp_path)) as lease:
            monkeypatch.setattr(module, "STALE_SECONDS", 600.0)  # its thread may renew late
            end.wait()
            lease.check()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(run, index) for index in range(8)]
        while sum(run.done() for run in runs) < 7:
            time.sleep(0.01)
        end.set()
    errors = [run.exception() for run in runs]
    assert errors.count(None) == 1
    assert all(error is None or isinstance(error, LeaseError) for error in errors)


def test_a_run_that_was_killed_is_waited_for_and_then_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STALE_SECONDS", 1.0)
    hold(tmp_path)
    with damage.reported() as said:
        assert seconds_to_take(tmp_path) >= 1.0
    assert [text.split(". ")[0] for text in said] == [
        f"MODEL_DIR {tmp_path} was last used by another run (process 12 on far)"
    ]


def test_a_run_that_renews_while_it_is_watched_is_refused(tmp_path, monkeypatch):
    hold(tmp_path)
    monkeypatch.setattr(module.time, "sleep", lambda _: hold(tmp_path, renewals=2))
    with refuses("MODEL_DIR", kind=LeaseError) as refused, Lease(str(tmp_path)):
        pass
    assert "process 12 on far" in refused.value.why


# Whatever the file holds, tests/common/test_small_files.py reads it.
DAMAGED = [b"\0\xff", b'{"run": "x", "holder": "\\u001b[2J"}', b'{"run": "../x", "holder": "y"}']


def test_a_damaged_lease_is_that_of_an_unknown_run(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STALE_SECONDS", 0.1)
    monkeypatch.setattr(module, "RENEW_SECONDS", 1000.0)  # or it may replace what is written here
    for content in DAMAGED:
        put(tmp_path, content)
        assert seconds_to_take(tmp_path) >= 0.1
        with Lease(str(tmp_path)) as lease:
            put(tmp_path, content)
            with pytest.raises(LeaseError):
                lease.check()
        (tmp_path / module.NAME).unlink()


def test_a_run_that_was_taken_over_writes_no_more(tmp_path):
    with Lease(str(tmp_path)) as first:
        with Lease(str(tmp_path), take_over=True) as second:
            with refuses("MODEL_DIR", str(tmp_path), kind=LeaseError):
                first.check()
            assert not first.is_held()
            second.check()
        with pytest.raises(LeaseError, match="deleted"):
            first.check()
        assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with refuses("MODEL_DIR", str(tmp_path / "file"), kind=LeaseError) as refused:
        with Lease(str(tmp_path / "file")):
            pass
    assert "\n" not in str(refused.value)


IN_BUCKET = """
import os
from fakes.gcs_emulator import GcsEmulator
from t5x.checkpointing import lease as module

def refused(do):
    try:
        do()
    except module.LeaseError as error:
        print(error)

with GcsEmulator("bucket") as gcs:
    os.environ |= gcs.environment
    module.RENEW_SECONDS, module.GIVE_UP_SECONDS = 0.1, 1.0
    gcs.faults += [("POST .*lease", 503)]
    with module.Lease("gs://bucket/run") as first:
        refused(module.Lease("gs://bucket/run").__enter__)
        first.check()
        gcs.faults += [("POST .*lease", 403)] * 1000
        first.check()  # it can still be read
        gcs.faults.clear()
        with module.Lease("gs://bucket/run", take_over=True) as second:
            refused(first.check)
            second.check()
    assert gcs.objects == {}
    assert any("ifGenerationMatch=0" in line for line in gcs.log)
    with module.Lease("gs://bucket/run") as third:
        module._ANSWER_SECONDS = 0.5
        gcs.faults += [("lease", 503)] * 1000
        refused(third.check)
        gcs.faults.clear()
"""


def test_a_bucket_has_one_by_preconditions():
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    command = [sys.executable, "-c", IN_BUCKET]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    used, taken, silent = ended.stdout.splitlines()
    assert "another run uses (process " in used
    assert "has taken it over" in taken
    assert "not answered" in silent


class TakenOver:
    """Of training, which another run takes over at the first step."""

    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack

    def run(self, state, metrics_by_task):
        self.stack.enter_context(Lease(str(self.folder), take_over=True))
        return False


def test_training_stops_before_its_next_save(tmp_path):
    with contextlib.ExitStack() as other:
        action = {"TRAIN": [TakenOver(tmp_path, other)]}
        with pytest.raises(RuntimeError, match="has taken it over"):
            toy.train(tmp_path, actions=action, total_steps=12)
        assert layout.all_steps(str(tmp_path)) == []
        toy.train(tmp_path, total_steps=1, take_over=True)
        assert layout.all_steps(str(tmp_path)) == [1]
    assert not (tmp_path / module.NAME).exists()
