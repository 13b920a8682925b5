"""A dry run ends with a table of what it has checked."""

import jax
import jax.numpy as jnp

from fakes import toy
from t5x.checkpointing.restore import Match
from t5x.cli import dry_run
from t5x.loop.triggers import TrainingPlan


def test_steps_that_are_left():
    plan = TrainingPlan(total_steps=3000, save_period=1000)
    assert dry_run.steps(plan, 0).figure == "0 to 3,000, saved every 1,000, evaluated never"
    done = dry_run.steps(plan, 3000)
    assert (done.verdict, done.to_set) == ("warning", "TRAIN_STEPS above 3000")


def test_an_embedding_of_many_unused_rows_is_a_warning():
    params = {"kernel": jax.ShapeDtypeStruct((1000, 300), jnp.float32)}
    assert dry_run.model(params, toy.VOCABULARY, 384).verdict == "ok"  # 259 ids, padded
    found = dry_run.model(params, toy.VOCABULARY, 4096)
    assert (found.verdict, found.to_set) == ("warning", "network.*.vocab_size to 384")
    assert "3,837 of 4,096 rows of the embedding are never used" in found.figure


def test_what_a_checkpoint_lacks_is_a_warning():
    wanted = dict.fromkeys(("target/a", "target/b", "state/step"))
    complete = Match({}, wanted, {name: name for name in wanted}, (), None)
    assert dry_run.start("c", complete).verdict == "ok"
    partial = Match({}, wanted, {"target/a": "target/a"}, ("target/c",), None)
    assert "1 start from scratch and 1 unknown" in dry_run.start("c", partial).figure
    new = Match({}, wanted, {name: name for name in wanted}, (), "it is Adam's")
    assert "optimizer state is new: it is Adam's" in dry_run.start("c", new).figure
    assert dry_run.start(None, None).figure == "from scratch"
