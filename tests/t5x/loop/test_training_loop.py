"""The course of a run: what happens when, and who may end it. Steps cost nothing here."""

import enum
import json
import os
import re
import signal
import types

import numpy as np
import pytest
import tensorflow as tf

from common.errors import Failure
from fakes.refuses import refuses
from t5x.actions import EarlyStoppingAction
from t5x.loop.training_loop import TrainingRun
from t5x.loop.triggers import TrainingPlan
from t5x.monitoring.event_log import EventLog
from t5x.watch import Watch

LOSS = "unnormalized_loss_per_target_token"


class FakeTrainer:
    """Step n has loss n; nothing is computed."""

    def __init__(self, step=0, losses=None):
        self.state = types.SimpleNamespace(step=step, params=f"params {step}")
        self.partitioner = types.SimpleNamespace(mesh=types.SimpleNamespace(size=1))
        self.specs, self.wait_seconds, self.events, self.model = None, 0.0, [], None
        self.losses, self.bad_steps, self.compile_seconds = losses or {}, "stop", 0.0

    def compile(self, batch):
        self.events.append("compile")

    def wait_compiled(self):
        assert self.events[-1] == "compile"

    def close(self):
        self.closed = True

    def sums(self, step):
        loss = np.float32(self.losses.get(step, step))
        return (
            {
                "loss": loss,
                "cross_ent_loss": loss,
                "z_loss": np.float32(0),
                "unnormalized_z_loss": np.float32(0),
                "steps": np.float32(1),
            }
            | dict.fromkeys(
                ("target_tokens", "target_positions", "weights", "correct", "sequences"),
                1.0,
            )
            | {"input_positions": 1.0}
        )

    def training_steps(self, batches, until):
        pending = None
        for step in range(self.state.step + 1, until + 1):
            self.state = types.SimpleNamespace(step=step, params=f"params {step}")
            yield step, pending
            pending = self.sums(step)
        if pending:
            yield until, pending

    def evaluate(self, batches):
        self.events.append(("evaluate", self.state.step))
        return {LOSS: 1.0, "accuracy": 0.5}


class FakeStream:
    global_batch = None
    rows = (0, 8)
    closed = False

    def phases(self, step):
        return {}

    def wait(self, seconds):
        return True

    def counts(self):
        return {"toy": {"read": 10, "skipped": 0}}

    def epochs(self, trained):
        return {"toy": trained["target_positions"]}

    def data_summary(self, trained):
        return ["Data of toy, split 'train': 10 records read, none skipped"]

    def close(self):
        self.closed = True


class Note:
    """An action that notes when it was asked and what about, and may end the run."""

    def __init__(self, end_at=None):
        self.end_at, self.seen = end_at, []

    def run(self, state, metrics_by_task):
        self.seen.append((state.step, metrics_by_task))
        return state.step == self.end_at


class Infer:
    def __init__(self, events):
        self.events = events

    def evaluate(self, params, step, passing):
        self.events.append(("infer", step, params))
        return {"toy": {"exact": 0.25}}

    def data_summary(self):
        return []


def run(tmp_path, plan, actions=None, infer=False, trainer=None, first=False, watch=None):
    trainer, stream = trainer or FakeTrainer(), FakeStream()
    run = TrainingRun(
        trainer,
        stream,
        plan,
        str(tmp_path),
        None,
        eval_sets={"toy": [None]},
        infer_evaluator=Infer(trainer.events) if infer is True else infer or None,
        actions=actions or {},
        watch=watch or Watch(),
    )
    try:
        step = run.run(evaluate_first=first)
        assert trainer.closed
        return step, trainer.events
    finally:
        assert stream.closed


def test_things_happen_when_the_plan_says(tmp_path):
    plan = TrainingPlan(total_steps=5, eval_period=2, stats_period=1)
    step, events = run(tmp_path, plan, infer=True)
    assert step == 5
    expected = ["compile"]
    for at in (2, 4, 5):
        expected += [("evaluate", at), ("infer", at, f"params {at}")]
    assert events == expected


def test_a_figure_is_the_mean_since_the_last_stop(tmp_path):
    note = Note()
    run(tmp_path, TrainingPlan(total_steps=6, stats_period=3), {"TRAIN": [note]})
    means = [(step, seen["train"]["loss"]) for step, seen in note.seen]
    assert means == [(3, 2.0), (6, 5.0)]  # (1+2+3)/3 and (4+5+6)/3


def test_evaluation_may_come_before_training(tmp_path):
    _, events = run(tmp_path, TrainingPlan(total_steps=2, eval_period=2), first=True)
    # The first evaluation does not wait for the train step, which compiles meanwhile.
    assert events == [("evaluate", 0), "compile", ("evaluate", 2)]


Mode = enum.Enum("Mode", ["TRAIN", "TRAIN_EVAL", "INFER_EVAL"])


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("by", ["name", "member"])
def test_an_action_ends_the_run_at_its_stop(tmp_path, mode, by):
    note, other = Note(end_at=4), Note()
    actions = {mode.name if by == "name" else mode: [note, other]}
    step, events = run(tmp_path, TrainingPlan(total_steps=9, eval_period=2), actions, infer=True)
    assert step == 4
    assert events[-1][:2] == ("infer", 4)  # what is due at the stop is still done
    key, metric = ("train", "loss") if mode is Mode.TRAIN else ("toy", LOSS)
    metric = "exact" if mode is Mode.INFER_EVAL else metric
    assert [at for at, _ in note.seen] == [at for at, _ in other.seen] == [2, 4]
    assert metric in note.seen[0][1][key]


@pytest.mark.parametrize(("killed", "resumed"), [(4, 4), (6, 4), (8, 8), (10, 10)])
def test_an_evaluation_that_was_interrupted_is_repeated(tmp_path, killed, resumed):
    """By 10 three results in a row were no better than the one before, whatever came between."""
    values = {2: 0.1, 4: 0.6, 6: 0.6, 8: 0.5}

    class Scores(Infer):
        alive = False

        def evaluate(self, params, step, passing):
            if step == killed and not self.alive:
                raise MemoryError
            return {"toy": {"exact": values.get(step, 0.0), "text": "a"}}

    scores, log = Scores([]), EventLog(str(tmp_path))
    action = lambda: {"INFER_EVAL": [EarlyStoppingAction(("toy", "exact"), "max", patience=4)]}
    plan = TrainingPlan(total_steps=30, eval_period=2)
    with pytest.raises(MemoryError):
        run(tmp_path, plan, action(), infer=scores)
    log.write("save", step=resumed)
    log.close()
    scores.alive = True
    step, events = run(tmp_path, plan, action(), infer=scores, trainer=FakeTrainer(step=resumed))
    assert step == 10
    assert (("evaluate", resumed) in events) is (killed == resumed)


@pytest.mark.parametrize("bad_steps", ["stop", "go_back"])
def test_a_loss_that_is_no_number_is_no_result(tmp_path, bad_steps):
    """There is no going back without checkpoints."""
    trainer = FakeTrainer(losses={2: np.nan})
    trainer.bad_steps = bad_steps
    with pytest.raises(FloatingPointError, match="step 2 "):
        run(tmp_path, TrainingPlan(total_steps=6, eval_period=3), trainer=trainer)
    last = lines(tmp_path / "events.jsonl")[-1]
    assert last["event"] == "failed"
    assert last["diverged"]
    assert "step 2 " in last["reason"]


def test_a_notice_in_an_evaluation_ends_it_there(tmp_path, capsys):
    class Interrupted(FakeTrainer):
        def evaluate(self, batches):
            os.kill(os.getpid(), signal.SIGTERM)
            return self.events.append(list(batches))  # which is not reached

    step, events = run(tmp_path, TrainingPlan(total_steps=9, eval_period=2), trainer=Interrupted())
    assert (step, events) == (2, ["compile"])
    assert "Stopped by SIGTERM at step 2" in capsys.readouterr().err
    assert [e["event"] for e in lines(tmp_path / "events.jsonl")][-1:] == ["interrupted"]


def test_metrics_that_cannot_be_written_end_the_run_in_one_sentence(tmp_path):
    class Full(Note):
        def __init__(self, *_):
            pass

        def write_scalars(self, *_):
            raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")

        close = flush = write_scalars

    with refuses(str(tmp_path), kind=Failure):
        run(tmp_path, TrainingPlan(total_steps=6, stats_period=2), watch=Watch(writers=(Full,)))


def test_it_reports_its_data_and_the_step_it_resumes_from(tmp_path, capsys):
    run(tmp_path, TrainingPlan(total_steps=4, stats_period=2), trainer=FakeTrainer(step=2))
    said = capsys.readouterr().err
    assert "Resuming from" in said
    assert "Data of toy, split 'train': 10 records read, none skipped" in said


def test_at_the_end_nothing_is_compiled(tmp_path, capsys):
    step, events = run(tmp_path, TrainingPlan(total_steps=4), trainer=FakeTrainer(step=4))
    assert (step, events) == (4, [])
    said = capsys.readouterr().err
    assert re.search(r"\bTRAIN_STEPS above 4\b.*\bTRAIN_STEPS_RELATIVE\b", said)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_metrics_have_their_names(tmp_path):
    run(tmp_path, TrainingPlan(total_steps=4, eval_period=2), watch=Watch(writers=("jsonl",)))
    compiled, *rest = lines(tmp_path / "metrics.jsonl")
    assert compiled["timing/compilation_seconds"] >= 0
    train, validation = rest[:2]
    assert (train["folder"], train["step"]) == ("train", 2)
    assert {"data/records/toy", "data/skipped/toy", "data/wait_share", "accuracy"} <= set(train)
    assert not [name for name in train if name.startswith("device/")]  # a CPU reports none
    assert validation["folder"] == "training_eval/toy"


def test_it_notes_what_happened_when_and_shows_the_expected_loss(tmp_path, capsys):
    (tmp_path / "config.gin").write_text("TRAIN_STEPS = 4")
    plan = TrainingPlan(total_steps=4, eval_period=2)
    run(tmp_path, plan, infer=True, watch=Watch(expected_loss={4: 1.5}))
    events = lines(tmp_path / "events.jsonl")
    kinds = [event["event"] for event in events]
    assert kinds == ["start", "compile", *["evaluate", "infer", "measured"] * 2, "end"]
    assert events[0]["config"] == "TRAIN_STEPS = 4"
    assert (events[0]["total_steps"], events[0]["expected_loss"]) == (4, {"4": 1.5})
    assert events[-1]["step"] == 4
    measured = [event["metrics"] for event in events if event["event"] == "infer"]
    assert measured == [{"toy": {"exact": 0.25}}] * 2
    assert "expected 1.500 at step 4" in capsys.readouterr().err


def test_a_step_that_stood_still_is_noted(tmp_path, monkeypatch):
    class Slow(FakeTrainer):
        now = 0.0

        def training_steps(self, batches, until):
            for step, sums in super().training_steps(batches, until):
                slow = 30.0 if step == 15 else 0.1
                Slow.now += slow
                self.wait_seconds += slow - 0.1
                yield step, sums

    monkeypatch.setattr("t5x.loop.training_loop.time.monotonic", lambda: Slow.now)
    run(tmp_path, TrainingPlan(total_steps=20), trainer=Slow())
    (stall,) = [e for e in lines(tmp_path / "events.jsonl") if e["event"] == "stall"]
    assert (stall["step"], stall["reason"]) == (15, "data")
    assert stall["seconds"] == pytest.approx(30.0)
