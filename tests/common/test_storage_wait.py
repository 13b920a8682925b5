"""What does not answer is reported, and given up after a time."""

import threading
import time

import pytest
import tensorflow as tf

from common import storage_wait
from common.storage_wait import answer
from fakes import damage
from t5x.loop import model_dir, start


def test_an_answer_is_returned_and_an_error_raised():
    with damage.reported() as said:
        assert answer("the folder", lambda: 3) == 3
        with pytest.raises(KeyError):
            answer("the folder", lambda: {}[1])
    assert said == []


def test_a_wait_is_reported_and_given_up(monkeypatch):
    monkeypatch.setattr(storage_wait, "REPORT_SECONDS", 0.02)
    monkeypatch.setattr(storage_wait, "GIVE_UP_SECONDS", 0.5)
    hanging, begun = threading.Event(), time.monotonic()
    with damage.reported() as said:
        with pytest.raises(RuntimeError, match=r"^MODEL_DIR x has not answered for \d s, so the"):
            answer("MODEL_DIR x", hanging.wait)
        hanging.set()
    assert time.monotonic() - begun < 30
    assert said[0] == "MODEL_DIR x has not answered for 0 s; the command stops waiting after 0 s."
    assert 2 <= len(said) <= 6  # less and less often


def test_the_first_look_at_a_folder_is_such_a_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_wait, "REPORT_SECONDS", 0.02)
    monkeypatch.setattr(storage_wait, "GIVE_UP_SECONDS", 0.1)
    hanging = threading.Event()
    for module, name, look in (
        (model_dir, "_write_probe", model_dir.check_writable),
        (model_dir, "_await_probe", model_dir.check_writable),
        (start, "_newest", lambda folder: start.find_start(folder, None)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, lambda *_: hanging.wait())
            with pytest.raises(RuntimeError, match=f"MODEL_DIR {tmp_path} has not answered for"):
                look(str(tmp_path))
    hanging.set()


def test_a_bucket_that_is_unavailable_may_answer_a_restart(tmp_path, monkeypatch):
    def unavailable(_):
        raise tf.errors.UnavailableError(None, None, "503\nmore")

    monkeypatch.setattr(tf.io.gfile, "makedirs", unavailable)
    with pytest.raises(RuntimeError, match=r"which does not answer \(503\); start "):
        model_dir.check_writable(str(tmp_path))
