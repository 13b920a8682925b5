"""One run at a time holds MODEL_DIR, on a disk and in a bucket; a dead one is replaced."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
from absl import logging

from fakes import damage, toy
from fakes.gcs_emulator import GcsEmulator
from fakes.paths import ROOT
from t5x.checkpointing import layout
from t5x.loop import model_dir_lease as module
from t5x.loop.model_dir_lease import Lease, LeaseError, LostLease, held


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "STALE_SECONDS", 0.3)


def write(folder, **changes):
    """Write the lease of another run, by default of this process on another machine."""
    changes = {"machine": "other", "host": "far", **changes}
    owner = dataclasses.replace(Lease(str(folder))._me, **changes)
    pathlib.Path(folder).mkdir(exist_ok=True)
    (folder / module.NAME).write_text(json.dumps(dataclasses.asdict(owner)))


def test_one_run_holds_it_and_releases_it(tmp_path):
    with held(str(tmp_path / "run")) as lease:
        found = json.loads((tmp_path / "run/lease.json").read_text())
        assert (found["process"], found["run"]) == (os.getpid(), lease._me.run)
        lease.check()
        with pytest.raises(LeaseError) as refused, held(str(tmp_path / "run")):
            pass
        assert re.fullmatch(
            r"MODEL_DIR .*/run is used by another run \(process \d+ on \S+, since [-\d]{10} "
            r"[:\d]{8} UTC, renewed \d+ s ago\), .* set another MODEL_DIR, or start with "
            r"--take_over, and that run stops before its next save\.",
            str(refused.value),
        )
        lease.check()
    assert os.listdir(tmp_path / "run") == []
    with pytest.raises(KeyboardInterrupt), held(str(tmp_path / "run")):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path / "run") == []


HOLD = """
import sys, time
from t5x.loop.model_dir_lease import Lease
Lease(sys.argv[1]).acquire()
print("held", flush=True)
time.sleep(600)
"""


def test_a_process_that_was_killed_here_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STALE_SECONDS", 1000.0)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(LeaseError, match=f"process {process.pid} on"), held(str(tmp_path)):
            pass
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet looked at
        with held(str(tmp_path)) as lease:
            lease.check()
    with held(str(tmp_path)) as lease:
        lease.check()


def test_a_later_process_of_the_same_number_is_another(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STALE_SECONDS", 1000.0)
    write(tmp_path, machine=module._machine(), process=1, started="an earlier boot of 1")
    with held(str(tmp_path)):
        pass
    write(tmp_path, machine=module._machine(), process=1, started=module._started(1))
    with pytest.raises(LeaseError, match="process 1 on far"), held(str(tmp_path)):
        pass


def test_a_run_of_another_machine_is_waited_for_and_then_taken_over(tmp_path):
    write(tmp_path)
    with damage.reported() as said, held(str(tmp_path)):
        pass
    assert [text.split(" (")[0] for text in said] == [
        f"MODEL_DIR {tmp_path} was last used by a run on another machine",
        f"Taking {tmp_path} over from process {os.getpid()} on far, since "
        + said[1].split("since ")[1].split(" (")[0],
    ]
    write(tmp_path, renewed=time.time() - 10_000)
    with damage.reported() as said, held(str(tmp_path)):
        pass
    assert len(said) == 1  # not waited for


def test_a_run_of_another_machine_that_renews_is_refused(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.setattr(module, "STALE_SECONDS", 1000.0)
    monkeypatch.setattr(module.time, "sleep", lambda _: write(tmp_path, process=12))
    with pytest.raises(LeaseError, match="process 12 on far"), held(str(tmp_path)):
        pass


def test_a_lease_of_no_known_form_is_replaced(tmp_path):
    for content in ("", "[]", '{"run": 1}', "\0\1"):
        (tmp_path / module.NAME).write_text(content)
        with held(str(tmp_path)) as lease:
            lease.check()


def test_a_run_that_was_taken_over_writes_no_more(tmp_path, monkeypatch):
    with held(str(tmp_path)) as first:
        with held(str(tmp_path), take_over=True) as second:
            assert first.is_held()  # until it looks
            with pytest.raises(LostLease, match=r"taken over by another run \(process .*; set ano"):
                first.check()
            assert not first.is_held()
            second.check()
        assert os.listdir(tmp_path) == []
    with held(str(tmp_path)) as lease:
        os.remove(tmp_path / module.NAME)  # by hand
        lease.check()
        os.remove(tmp_path / module.NAME)  # while this process was suspended for long
        lease._me = dataclasses.replace(lease._me, renewed=time.time() - 100)
        with pytest.raises(LostLease, match="a run that has ended since"):
            lease.check()


def test_it_is_renewed_in_the_background(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.01)
    with held(str(tmp_path)) as lease:
        before, end = lease._me.renewed, time.monotonic() + 30
        while lease._me.renewed == before:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert json.loads((tmp_path / module.NAME).read_text())["renewed"] > before


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LeaseError, match=r"file, whose lease.json cannot be written \(") as refused:
        with held(str(tmp_path / "file")):
            pass
    assert "\n" not in str(refused.value)


def test_an_end_does_not_wait_for_a_renewal_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_RELEASE_SECONDS", 0.01)
    with held(str(tmp_path)) as lease:
        assert lease._lock.acquire()
    assert os.listdir(tmp_path) == [module.NAME]
    with held(str(tmp_path)):  # the same process has left it
        pass


IN_BUCKET = """
import sys
from t5x.loop import model_dir_lease as module
from t5x.loop.model_dir_lease import held, LeaseError, LostLease
with held("gs://bucket/run") as first:
    try:
        with held("gs://bucket/run"):
            pass
    except LeaseError as error:
        print(error)
    first.check()
    with held("gs://bucket/run", take_over=True) as second:
        try:
            first.check()
        except LostLease as error:
            print(error)
        second.check()
"""


def test_a_bucket_has_one_by_preconditions():
    with GcsEmulator("bucket") as gcs:
        gcs.faults += [("POST .*lease", 503)]
        command = [sys.executable, "-c", IN_BUCKET]
        environment = os.environ | gcs.environment
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
        assert ended.returncode == 0, ended.stderr
        used, taken = ended.stdout.splitlines()
        assert used.startswith("MODEL_DIR gs://bucket/run is used by another run (process ")
        assert taken.startswith("MODEL_DIR gs://bucket/run was taken over by another run (process ")
        assert not gcs.faults
        assert gcs.objects == {}
        assert any("ifGenerationMatch=0" in line for line in gcs.log)


class TakenOver:
    """Whose learning rate, at the first step, is asked for after another run has taken over."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, state, metrics_by_task):
        Lease(str(self.folder)).acquire(take_over=True)
        return False


def test_training_stops_before_its_next_save(tmp_path):
    action = {"TRAIN": [TakenOver(tmp_path)]}
    with pytest.raises(RuntimeError, match="was taken over by another run"):
        toy.train(tmp_path, actions=action, total_steps=12)
    assert layout.all_steps(str(tmp_path)) == []
    logging.info("The same process may train there again.")
    toy.train(tmp_path, total_steps=1, take_over=True)
    assert layout.all_steps(str(tmp_path)) == [1]
    assert not (tmp_path / module.NAME).exists()
