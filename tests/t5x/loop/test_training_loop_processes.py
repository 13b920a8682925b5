"""Real training processes: interrupted they end, and killed at any moment they lose nothing."""

import json
import random
import re
import signal
import time

import numpy as np
import pytest

from fakes.paths import ROOT
from fakes.pods import ENCODER, SMALL, Pod
from t5x.checkpointing import layout

STEPS = 120


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Where compiled programs are kept for all of them."""
    return tmp_path_factory.mktemp("programs")


def last_words(path):
    """Return what an aborted process said: its child says it, which may live a moment longer."""
    end = time.monotonic() + 20
    while not path.read_text().endswith("\n") and time.monotonic() < end:
        time.sleep(0.05)
    return path.read_text()


@pytest.mark.slow
def test_a_process_killed_twice_at_any_step_loses_nothing(tmp_path, programs):
    with Pod(tmp_path / "undisturbed", STEPS, programs=programs) as undisturbed:
        assert undisturbed.ends() == [0], undisturbed.said()
    wanted = undisturbed.losses()
    assert list(wanted) == list(range(1, STEPS + 1))
    for trial in range(2):
        folder, seconds = tmp_path / str(trial), random.Random(trial)
        for _ in range(2):
            before = len(layout.all_steps(str(folder / "run")))
            with Pod(folder, STEPS, programs=programs) as pod:
                while len(pod.saved()) <= before and pod.processes[0].poll() is None:
                    time.sleep(0.02)
                time.sleep(seconds.uniform(0, 1.0))
        with Pod(folder, STEPS, programs=programs) as pod:
            assert pod.ends() == [0], pod.said()
        found = pod.losses()
        assert {s: found[s] for s in wanted} == wanted
        for name, value in undisturbed.arrays().items():
            np.testing.assert_array_equal(pod.arrays()[name], value, err_msg=name)


@pytest.mark.slow
def test_two_and_four_processes_learn_what_one_does(tmp_path, programs):
    """Floats are added in another order; that the batches are the same, test_stream.py shows."""
    found = {}
    for processes in (1, 2, 4):
        with Pod(tmp_path / str(processes), 30, processes, programs) as pod:
            assert not any(pod.ends()), pod.said()
        found[processes] = pod.losses()
    assert list(found[1]) == list(range(1, 31))
    assert found[1][30] < 0.95 * found[1][1]
    for processes in (2, 4):
        assert found[processes] == pytest.approx(found[1], rel=2e-3)


@pytest.mark.slow
def test_two_processes_train_an_encoder_as_one_does_and_resume_exactly(tmp_path, programs):
    """How many turns the logits take is agreed on by all rows of the batch."""
    found = {}
    for name, processes, ends in (("one", 1, [30]), ("two", 2, [30]), ("resumed", 2, [20, 30])):
        for steps in ends:
            with Pod(tmp_path / name, steps, processes, programs, recipe=ENCODER) as pod:
                assert not any(pod.ends()), pod.said()
        found[name] = pod.losses()
    assert list(found["one"]) == list(range(1, 31))
    assert found["two"] == pytest.approx(found["one"], rel=2e-3)
    assert found["resumed"] == found["two"]


@pytest.mark.slow
def test_a_second_run_in_one_folder_is_refused_by_all_its_hosts(tmp_path, programs):
    with Pod(tmp_path / "a", 1_000_000, programs=programs) as first:
        first.wait_for(first.saved)
        with Pod(tmp_path / "b", 1_000_000, 2, programs, model_dir=str(first.run)) as second:
            assert second.ends(within=200) == [1, 1], second.said()
        wanted = f"which another run uses (process {first.processes[0].pid} on "
        for index in range(2):
            assert wanted in (tmp_path / f"b/said_{index}.txt").read_text()
        first.send(0, signal.SIGINT)
        assert first.ends(within=90) == [0], first.said()
    assert not (first.run / "lease.json").exists()


FINE_TUNE = """
from t5x import trainer
include 'gin/ro_diacritics_tiny.gin'
INITIAL_CHECKPOINT_PATH = []
TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 32}
BATCH_SIZE = 8
EVAL_PERIOD = 4
EVALUATOR_NUM_EXAMPLES = 12
utils.SaveCheckpointConfig.period = 4
train_script.train.train_eval_dataset_cfg = None
train_script.train.actions = {'INFER_EVAL': [@trainer.EarlyStoppingAction()]}
trainer.EarlyStoppingAction.metric = ('ro_mini_diacritics', 'word_accuracy')
trainer.EarlyStoppingAction.mode = 'max'
trainer.EarlyStoppingAction.patience = 2
trainer.EarlyStoppingAction.atol = 1.0
"""


@pytest.mark.slow
def test_two_processes_decode_measure_and_stop_as_one_does(tmp_path, programs):
    """No evaluation can be better by more than 1 than the first, so the second one ends the run."""
    sizes = "\n".join(line for line in SMALL.splitlines() if line.startswith("network."))
    found = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        with Pod(folder, 40, processes, programs, FINE_TUNE + sizes) as pod:
            assert pod.ends() == [0] * processes, pod.said()
        measured = folder / "run/inference_eval/ro_mini_diacritics-metrics.jsonl"
        rows = [json.loads(line) for line in measured.read_text().splitlines()]
        assert [row["step"] for row in rows] == [4, 8]
        generated = (folder / "run/generated_predictions.jsonl").read_text().splitlines()
        found.append((rows, [json.loads(line) for line in generated]))
    (rows, predictions), (others, others_predictions) = found
    assert len(predictions) == 12
    best = max(rows, key=lambda row: row["word_accuracy"])  # of equal ones the first
    assert {line["step"] for line in predictions} == {best["step"]}
    assert others_predictions == predictions
    for row, other in zip(rows, others, strict=True):
        assert other == pytest.approx(row)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_notice_to_one_host_lets_all_save_the_same_step_and_end_well(
    tmp_path, programs, processes
):
    """Pipelines still run ahead at the end: nothing may wait for them."""
    for index, number in ((processes - 1, signal.SIGINT), (0, signal.SIGTERM)):
        with Pod(tmp_path, 1_000_000, processes, programs) as pod:
            before = pod.saved()
            pod.wait_for(lambda: set(pod.saved()) - set(before))  # noqa: B023
            pod.send(index, number)
            assert pod.ends(within=90) == [0] * processes, pod.said()
        step = int(re.search(r"Stopped by .* at step ([\d,]+)", pod.said())[1].replace(",", ""))
        assert pod.saved()[-1] == step


@pytest.mark.slow
def test_a_host_killed_takes_the_others_along_within_a_minute(tmp_path, programs):
    for index in (1, 0):  # the last one; the one that the others speak to
        with Pod(tmp_path, 1_000_000, 2, programs) as pod:
            before = pod.saved()
            pod.wait_for(lambda: set(pod.saved()) - set(before))  # noqa: B023
            pod.send(index, signal.SIGKILL)
            statuses = pod.ends(within=60)
        assert all(statuses), pod.said()
        assert pod.saved()
        said = last_words(tmp_path / f"said_{1 - index}.txt")
        assert "Traceback" not in said


@pytest.mark.slow
def test_a_folder_that_hosts_do_not_share_is_refused_by_all(tmp_path, programs):
    """Of one name, which is another folder for each of them."""
    places = [tmp_path / name for name in ("one", "other")]
    for place in places:
        place.mkdir()
        (place / "data").symlink_to(ROOT / "data")  # recipes name files from the repository's root
    with Pod(tmp_path, 10, 2, programs, model_dir="run", places=places) as pod:
        assert pod.ends() == [2, 2], pod.said()
    assert "which host 1 does not share with host 0" in pod.said()
