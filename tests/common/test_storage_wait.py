"""What does not answer is reported, and given up after a time."""

import threading
import time

import pytest
import tensorflow as tf

from common import storage_wait
from common.errors import Failure
from common.storage_wait import answer
from fakes import damage
from fakes.refuses import refuses
from t5x.checkpointing import layout
from t5x.start import checkpoint as start
from t5x.start import model_dir


def test_an_answer_is_returned_and_an_error_raised():
    with damage.reported() as messages:
        assert answer("the folder", lambda: 3) == 3
        with pytest.raises(KeyError):
            answer("the folder", lambda: {}[1])
    assert messages == []


def test_a_wait_is_reported_less_and_less_often_and_given_up(monkeypatch):
    monkeypatch.setattr(storage_wait, "REPORT_SECONDS", 0.02)
    hanging = threading.Event()

    def until_reported():
        while not messages:
            time.sleep(0.01)
        return 3

    with damage.reported() as messages:
        assert answer("MODEL_DIR x", until_reported) == 3
        assert "MODEL_DIR x" in messages[0]
        messages.clear()
        monkeypatch.setattr(storage_wait, "GIVE_UP_SECONDS", 0.5)
        with refuses("MODEL_DIR x", kind=Failure):
            answer("MODEL_DIR x", hanging.wait)
        hanging.set()
    assert len(messages) <= 5  # an even pace would take 24


@pytest.mark.parametrize(
    ("module", "name", "look"),
    [
        (tf.io.gfile, "makedirs", model_dir.check_writable),
        (tf.io.gfile, "exists", model_dir.check_writable),
        (layout, "all_steps", lambda folder: start.find_start(folder, None)),
    ],
)
def test_the_first_look_at_a_folder_is_such_a_wait(tmp_path, monkeypatch, module, name, look):
    monkeypatch.setattr(storage_wait, "REPORT_SECONDS", 0.02)
    monkeypatch.setattr(storage_wait, "GIVE_UP_SECONDS", 0.1)
    hanging = threading.Event()
    monkeypatch.setattr(module, name, lambda *_: hanging.wait() and [])
    with refuses(f"MODEL_DIR {tmp_path}", kind=Failure):
        look(str(tmp_path))
    hanging.set()


def test_a_bucket_that_is_unavailable_may_answer_a_restart(tmp_path, monkeypatch):
    def unavailable(_):
        raise tf.errors.UnavailableError(None, None, "503\nmore")

    monkeypatch.setattr(tf.io.gfile, "makedirs", unavailable)
    with pytest.raises(RuntimeError, match=r"which does not answer \(503\); start "):
        model_dir.check_writable(str(tmp_path))
