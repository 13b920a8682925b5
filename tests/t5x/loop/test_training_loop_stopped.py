"""An evaluation that a stop has cut is repeated by the same command."""

import json
import os
import signal

from fakes import toy
from t5x.trainer import Trainer


def test_an_evaluation_stopped_among_its_tasks_is_repeated_at_the_last_step_too(
    tmp_path, monkeypatch, capsys
):
    evaluate, measured = Trainer.evaluate, []

    def stopped(self, batches):
        measured.append(int(self.state.step))
        if len(measured) == 4:  # the second of two tasks, at the last step
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(self, batches)

    monkeypatch.setattr(Trainer, "evaluate", stopped)
    metric = f"training_eval/{toy.BARE}/loss"
    changes = {
        "save": {"keep": 1, "keep_best": 1, "metric": metric, "mode": "min"},
        "train_eval_dataset_cfg": toy.data("validation", mixture_or_task_name=toy.MIXED),
    }
    toy.train(tmp_path, **changes)
    best = lambda: json.loads((tmp_path / "best.json").read_text())["values"].keys()
    assert best() == {"4"}
    assert toy.train(tmp_path, **changes)[0] == 8
    assert (measured, best()) == ([4, 4, 8, 8, 8, 8], {"4", "8"})
    capsys.readouterr()
    toy.train(tmp_path, **changes)
    assert len(measured) == 6
    assert "nothing is left to do" in capsys.readouterr().err
