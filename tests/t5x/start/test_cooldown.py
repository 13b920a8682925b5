"""A branch that finishes a run: what it starts from, how its rate falls, what is refused."""

import numpy as np
import optax
import pytest

from fakes.refuses import refuses
from t5x import adafactor, optimizers, schedules
from t5x.checkpointing.config import (
    CheckpointConfig,
    RestoreCheckpointConfig,
    SaveCheckpointConfig,
)
from t5x.start import cooldown

SAVE = SaveCheckpointConfig(period=5)
PUBLIC = RestoreCheckpointConfig("gs://public/checkpoint_100", "specific")


def test_a_branch_starts_from_its_source_and_its_data_position():
    found = cooldown.branch(
        "runs/long/checkpoint_70/", 10, "runs/x", CheckpointConfig(SAVE, PUBLIC)
    )
    assert found.save is SAVE
    assert found.restore == RestoreCheckpointConfig(
        "runs/long/checkpoint_70", "specific", restore_dataset=True
    )


def test_a_branch_may_begin_its_corpora():
    arguments = ("runs/long/checkpoint_70", 10, "runs/x", CheckpointConfig(SAVE, PUBLIC))
    assert not cooldown.branch(*arguments, restore_dataset=False).restore.restore_dataset


REFUSED = {
    "no step in its name": (("runs/long", 10, "runs/x"), "COOLDOWN_FROM"),
    "no end": (("runs/long/checkpoint_7", None, "x"), "TRAIN_STEPS_RELATIVE"),
    "its own source": (("runs/y/checkpoint_7", 5, "runs/y/"), "MODEL_DIR"),
    "its own source by another path": (("runs/y/checkpoint_7", 5, "runs/z/../y"), "MODEL_DIR"),
    "its own bucket": (("gs://b/y/checkpoint_7", 5, "gs://b/y"), "MODEL_DIR"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_branch_that_cannot_be_is_refused(name):
    arguments, setting = REFUSED[name]
    at_fault = "MODEL_DIR" if setting == "MODEL_DIR" else "train.cooldown_from"
    with refuses(at_fault) as refusal:
        cooldown.branch(*arguments, CheckpointConfig(SAVE))
    assert setting in refusal.value.to_set


def test_a_rate_that_the_trainer_does_not_set_is_refused():
    own = optimizers.chain([optax.lion(1e-4)])
    with refuses("train.cooldown_from", "runs/long/checkpoint_7"):
        cooldown.check_optimizer("runs/long/checkpoint_7", own)
    cooldown.check_optimizer(None, own)
    for optimizer in (optimizers.adamw(), optimizers.muon(), adafactor.Adafactor()):
        cooldown.check_optimizer("runs/long/checkpoint_7", optimizer)


def test_the_rate_is_that_of_the_run_times_a_straight_line():
    run = schedules.create_learning_rate_scheduler("constant * rsqrt_decay", 1.0, 100)
    rate = cooldown.cooled(run, "runs/long/checkpoint_400", 480)
    steps = np.arange(400, 480)
    left = (480 - steps) / 80
    np.testing.assert_allclose(rate(steps), left / np.sqrt(steps), rtol=1e-6)
    assert rate(400) == run(400)
    assert rate(480) == 0
    assert rate(400).dtype == np.float32
