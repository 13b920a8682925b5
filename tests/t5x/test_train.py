"""Complete runs: they learn, resume exactly after any end, and reject bad settings early."""

import dataclasses
import errno
import json
import os
import shutil
import signal

import jax
import numpy as np
import pytest
import seqio

from common.errors import Failure, UserError
from fakes import toy
from fakes.refuses import refuses
from fakes.scalars import LOSS, scalars
from t5x import checkpoints, optimizers, schedules
from t5x.checkpointing import layout
from t5x.checkpointing.config import RestoreCheckpointConfig
from t5x.checkpointing.restore import restore
from t5x.input_pipeline.stream import TrainStream
from t5x.loop.triggers import training_plan
from t5x.monitoring.event_log import EventLog
from t5x.partitioning import PjitPartitioner
from t5x.start import state as starting
from t5x.train_state import state_specs, to_disk
from tasks import mixtures


@dataclasses.dataclass
class Watch:
    """Notes each step's loss; at step `at` does `then`."""

    at: int = -1
    then: object = None
    losses: dict = dataclasses.field(default_factory=dict)

    def run(self, state, metrics_by_task):
        step = int(state.step)
        self.losses[step] = metrics_by_task["train"][LOSS]
        if step == self.at:
            return self.then()
        return False


class Killed(Exception):
    """The process was taken away."""


def kill():
    raise Killed


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    return False


def run(folder, watch=None, **changes):
    """Two devices, so that a batch of 6 has two shards; 8 steps, saved every 4."""
    watch = watch or Watch()
    changes.setdefault("partitioner", PjitPartitioner(devices=jax.devices()[:2]))
    changes.setdefault("train_dataset_cfg", toy.data(batch_size=6))
    step, state = toy.train(folder, actions={"TRAIN": [watch]}, **changes)
    return step, jax.device_get(state), watch.losses


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run of 8 steps with evaluations of both kinds: folder, state, losses."""
    folder = tmp_path_factory.mktemp("undisturbed")
    step, state, losses = run(
        folder,
        train_eval_dataset_cfg=toy.data("validation", batch_size=6, pack=True),
        infer_eval_dataset_cfg=toy.data("validation", batch_size=10, pack=False),
        run_eval_before_training=True,
    )
    assert step == 8
    return folder, state, losses


def test_a_run_learns_and_leaves_what_it_promises(undisturbed):
    folder, state, losses = undisturbed
    assert list(losses) == list(range(1, 9))
    assert losses[8] < 0.6 * losses[1]
    assert int(state.step) == 8
    assert layout.all_steps(str(folder)) == [4, 8]
    assert (folder / "model-info.txt").exists()
    inference = json.loads((folder / "inference.json").read_text())
    assert inference == {"lengths": toy.LENGTHS, "prefixes": {}}
    assert scalars(folder / "train") == pytest.approx(losses)
    assert list(scalars(folder / "train", "learning_rate")) == list(range(1, 9))
    evaluated = scalars(folder / "training_eval" / toy.TASK)
    assert list(evaluated) == [0, 4, 8]
    assert evaluated[8] < 0.7 * evaluated[0]


def same_states(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_full_disk_names_the_run(tmp_path):
    def write_config(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with refuses(tmp_path, kind=Failure):
        run(tmp_path, summarize_config_fn=write_config)


@pytest.mark.parametrize("network", ["t5", pytest.param("t5gemma2", marks=pytest.mark.slow)])
def test_a_killed_run_resumes_exactly(undisturbed, tmp_path, network):
    _, state, losses = undisturbed
    settings = {}
    if network == "t5gemma2":
        settings["model"] = toy.gemma()
        _, state, losses = run(tmp_path / "whole", **settings)
    watch, folder = Watch(at=6, then=kill), tmp_path / "killed"
    with pytest.raises(Killed):
        run(folder, watch, **settings)
    assert layout.all_steps(str(folder)) == [4]
    step, again, later = run(folder, **settings)
    assert step == 8
    assert list(later) == [5, 6, 7, 8]
    assert {**watch.losses, **later} == losses  # to the last bit
    same_states(again, state)


def test_ctrl_c_saves_at_once_and_the_run_resumes_there(undisturbed, tmp_path, capsys):
    _, state, losses = undisturbed
    step, _, first = run(tmp_path, Watch(at=5, then=interrupt))
    assert step == 6
    assert layout.all_steps(str(tmp_path)) == [4, 6]
    assert "Stopped by SIGINT at step 6" in capsys.readouterr().err
    step, again, later = run(tmp_path)
    assert (step, list(later)) == (8, [7, 8])
    logged = scalars(tmp_path / "train")
    assert sorted(logged) == list(range(1, 9))  # the step at which it left too
    for part in (first, later):
        assert part.items() <= losses.items()
    same_states(again, state)


@pytest.mark.slow
def test_eight_devices_with_four_partitions_learn_the_same(undisturbed, tmp_path):
    _, _, losses = undisturbed
    step, _, found = run(tmp_path, partitioner=PjitPartitioner(num_partitions=4), total_steps=2)
    assert step == 2
    for at, loss in found.items():
        np.testing.assert_allclose(loss, losses[at], rtol=1e-3)


@pytest.mark.slow
def test_one_device_learns_the_same_with_nothing_compiled(undisturbed, tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *_: compiled.append(1))
    partitioner = PjitPartitioner(num_partitions=2)
    try:
        step, _, found = run(tmp_path, partitioner=partitioner, total_steps=1, single_device=True)
    finally:
        jax.config.update("jax_disable_jit", False)
    assert (step, compiled) == (1, [])
    np.testing.assert_allclose(found[1], undisturbed[2][1], rtol=1e-3)


def test_a_cooldown_branch_finishes_a_run_and_resumes_without_it(undisturbed, tmp_path):
    folder, _, losses = undisturbed
    source = tmp_path / "long"
    shutil.copytree(f"{folder}/checkpoint_4", source / "checkpoint_4")
    content = lambda: {p: p.stat().st_mtime_ns for p in sorted(source.rglob("*"))}
    before = content()
    settings = {"cooldown_from": f"{source}/checkpoint_4", "relative_steps": 4}
    settings |= {"total_steps": 99, "save": {"period": 2}}
    step, state, found = run(tmp_path / "branch", **settings)
    assert (step, list(found)) == (8, [5, 6, 7, 8])
    logged = scalars(tmp_path / "branch/train", "learning_rate")
    assert logged == pytest.approx({5: 0.3, 6: 0.225, 7: 0.15, 8: 0.075})
    # The first step is taken at the full rate, so that two losses show that the data is the same.
    # Another program rounds otherwise.
    assert [found[5], found[6]] == pytest.approx([losses[5], losses[6]], rel=1e-5)
    assert found[7] != pytest.approx(losses[7], rel=1e-5)
    assert content() == before

    watch = Watch(at=7, then=kill)
    with pytest.raises(Killed):
        run(tmp_path / "again", watch, **settings)
    shutil.rmtree(source)  # the long run keeps its newest checkpoints only
    step, again, later = run(tmp_path / "again", **settings)
    assert (step, list(later)) == (8, [7, 8])
    assert {**watch.losses, **later} == found
    same_states(again, state)


@pytest.mark.parametrize("files", [[], ["train_ds-000-of-001.index"]])  # nothing, or upstream's
def test_a_branch_from_a_checkpoint_without_a_data_position_says_so(
    files, undisturbed, tmp_path, caplog
):
    folder, *_ = undisturbed
    shutil.copytree(f"{folder}/checkpoint_4", tmp_path / "checkpoint_4")
    shutil.rmtree(tmp_path / "checkpoint_4/dataset")
    (tmp_path / "checkpoint_4/_CHECKPOINT_METADATA").unlink()  # which says that there is one
    (tmp_path / "checkpoint_4/dataset").mkdir()
    for name in files:
        (tmp_path / "checkpoint_4/dataset" / name).touch()
    settings = {"cooldown_from": f"{tmp_path}/checkpoint_4", "relative_steps": 4, "dry_run": True}
    run(tmp_path / "branch", **settings)
    assert "holds no data position" in caplog.text


@pytest.fixture
def mixed():
    """Return a function that registers a mixture of the toy tasks at these rates."""
    added = []

    def add(name, rates):
        mixtures.add(name, dict(zip((toy.TASK, toy.BARE), rates, strict=True)))
        added.append(name)
        return toy.data(mixture_or_task_name=name, batch_size=6)

    yield add
    for name in added:
        seqio.MixtureRegistry.remove(name)


def test_rates_change_at_their_step_also_after_a_kill(mixed, tmp_path):
    cfg = mixed("toy_phased", ([(0, 1), (5, 0)], [(0, 0), (5, 1)]))
    _, state, losses = run(tmp_path / "whole", train_dataset_cfg=cfg)
    watch = Watch(at=6, then=kill)
    with pytest.raises(Killed):
        run(tmp_path / "killed", watch, train_dataset_cfg=cfg)
    _, again, later = run(tmp_path / "killed", train_dataset_cfg=cfg)
    assert {**watch.losses, **later} == losses
    same_states(again, state)
    start = next(iter(EventLog(str(tmp_path / "whole")).events("start")))
    assert start["phases"] == {"0": {toy.TASK: 1, toy.BARE: 0}, "5": {toy.TASK: 0, toy.BARE: 1}}


def test_a_branch_may_read_another_mixture_but_a_run_may_not(undisturbed, mixed, tmp_path, capsys):
    folder, *_ = undisturbed
    own = tmp_path / "own"
    shutil.copytree(f"{folder}/checkpoint_4", own / "checkpoint_4")
    given = {"train_dataset_cfg": mixed("toy_decay", (1, 1)), "dry_run": True}
    branch = {"cooldown_from": f"{own}/checkpoint_4", "relative_steps": 4}
    run(tmp_path / "branch", **given, **branch)
    said = " ".join(capsys.readouterr().out.split())  # a row of the table may wrap
    assert f"{toy.TASK} continues" in said
    assert f"{toy.BARE} begins" in said
    with pytest.raises(UserError, match=r"MODEL_DIR.*COOLDOWN_FROM"):
        run(own, **given)


def test_phases_that_the_steps_do_not_reach_are_refused(undisturbed, mixed, tmp_path, capsys):
    folder, *_ = undisturbed
    cfg = mixed("toy_late", (1, [(0, 0), (7, 1)]))
    given = {"train_dataset_cfg": cfg, "dry_run": True}
    run(tmp_path, **given)
    assert "from step 7" in capsys.readouterr().out
    branch = {"cooldown_from": f"{folder}/checkpoint_4", "relative_steps": 7}  # to step 11
    for short in ({"total_steps": 7}, branch):
        with refuses("TRAIN_STEPS"):
            run(tmp_path, **given, **short)
    run(tmp_path, **given, **{**branch, "relative_steps": 8})
    assert "from step 11" in capsys.readouterr().out  # the branch counts its own steps
    with refuses("SaveCheckpointConfig.save_dataset", False):
        run(tmp_path, save={"save_dataset": False}, **given)


def warmed_up(**settings):
    """4 steps of warm-up, 8 of decay, from where a schedule counts."""
    factors = "constant * linear_warmup * linear_decay_to_zero"
    return schedules.create_learning_rate_scheduler(
        factors, 0.01, warmup_steps=4, total_steps=12, **settings
    )


def test_another_run_starts_from_its_parameters_with_its_own_optimizer_and_schedule(
    undisturbed, tmp_path, caplog
):
    folder, _, losses = undisturbed
    model = toy.model()
    model.optimizer_def = optimizers.adamw()
    step, _, found = run(
        tmp_path,
        model=model,
        restore=RestoreCheckpointConfig(f"{folder}/checkpoint_8", mode="specific"),
        trainer={"learning_rate_fn": warmed_up(step_offset=8)},
        total_steps=20,
    )
    assert (step, list(found)) == (20, list(range(9, 21)))
    assert found[9] < 0.6 * losses[1]
    logged = scalars(tmp_path / "train", "learning_rate")
    assert logged == pytest.approx(
        {9: 1e-8, 10: 0.0025, 11: 0.005, 12: 0.0075, 13: 0.01}
        | {13 + i: 0.01 * (8 - i) / 8 for i in range(1, 8)},
        rel=1e-5,
    )
    assert not [r for r in caplog.records if "learning rate" in r.getMessage()]


def test_a_loss_that_is_no_number_ends_the_run_without_a_checkpoint(undisturbed, tmp_path):
    _, state, _ = undisturbed
    specs = state_specs(toy.shared_model(), PjitPartitioner(devices=jax.devices()[:1]))
    bad = jax.tree.map(lambda x: np.float32(1e30) * np.sign(x), state.params)
    with checkpoints.Checkpointer(str(tmp_path / "bad")) as checkpointer:
        checkpointer.save(0, to_disk(state.replace(params=bad, step=np.int32(0)), specs))
    restore = RestoreCheckpointConfig(str(tmp_path / "bad"))
    with pytest.raises(FloatingPointError, match=r"step 1 "):
        run(tmp_path / "run", restore=restore)
    assert layout.all_steps(str(tmp_path / "run")) == []


def test_a_damaged_checkpoint_is_said_and_the_one_before_taken(undisturbed, tmp_path, caplog):
    folder, _, losses = undisturbed
    shutil.copytree(folder, tmp_path / "run")
    newest = tmp_path / "run/checkpoint_8"
    place = sorted(newest.glob("dataset/*.rows.npz"))[0]
    place.write_bytes(place.read_bytes()[:-9])
    step, _, later = run(tmp_path / "run", total_steps=9)
    (damage,) = [text for text in caplog.messages if "rows.npz" in text]
    assert f"{tmp_path}/run/checkpoint_4" in damage
    assert (step, list(later)) == (9, [5, 6, 7, 8, 9])
    assert {**losses, **later} == {**later, **losses}
    assert layout.all_steps(str(tmp_path / "run")) == [4, 8, 9]
    layout.check_checksums(f"{newest}/dataset")


class Spoiled(TrainStream):
    """Whose sixth batch has targets that no vocabulary has, so that its loss is not a number."""

    taken = 0

    def __next__(self):
        batch = super().__next__()
        self.taken += 1
        if self.taken == 6:
            batch = {**batch, "decoder_target_tokens": batch["decoder_target_tokens"] + 10**6}
        return batch


class Unreadable(TrainStream):
    """Whose batch after `last` cannot be read, or does not come while a signal arrives."""

    last, hangs, taken = 0, False, 0

    def __next__(self):
        batch = super().__next__()
        self.taken += 1
        return batch

    def wait(self, seconds=None):
        if self.hangs and self.taken == self.last:
            if not self.interrupted():
                os.kill(os.getpid(), signal.SIGTERM)
            return False
        return super().wait(seconds)

    def check(self):
        if not self.hangs and self.taken == self.last:
            raise RuntimeError("Reading the data failed: no route to the hub.")


def unreadable(last, hangs=False):
    def stream(*args):
        made = Unreadable(*args)
        made.last, made.hangs = last, hangs
        return made

    return stream


def test_the_last_state_is_saved_though_no_more_data_can_be_read(tmp_path, capsys):
    save = {"when_failed": "go_on"}  # which is not for what is wrong with the data
    with pytest.raises(RuntimeError, match="no route to the hub"):
        run(tmp_path, save=save, get_dataset_fn=unreadable(4))
    assert layout.all_steps(str(tmp_path)) == []  # a resumed run would have lost its place
    step, state, _ = run(tmp_path, save=save, get_dataset_fn=unreadable(8))
    assert (step, layout.all_steps(str(tmp_path))) == (8, [4, 8])
    assert "checkpoint_8 has no data position" in capsys.readouterr().err
    assert layout.dataset_folder(f"{tmp_path}/checkpoint_4")
    assert layout.dataset_folder(f"{tmp_path}/checkpoint_8") is None
    specs = state_specs(toy.model(), PjitPartitioner(devices=jax.devices()[:2]))
    restored = restore(f"{tmp_path}/checkpoint_8", specs.on_disk).state
    same_states(restored, to_disk(state, specs))


@pytest.mark.parametrize(("last", "saved"), [(6, [4, 6]), (4, [4])])
def test_a_signal_while_data_does_not_come_saves_the_state(tmp_path, capsys, last, saved):
    step, _, losses = run(tmp_path, get_dataset_fn=unreadable(last, hangs=True))
    assert (step, list(losses)) == (last, list(range(1, last + 1)))
    assert layout.all_steps(str(tmp_path)) == saved
    said = capsys.readouterr().err
    assert f"Stopped by SIGTERM at step {last}" in said
    assert "has no data position" in said or last in saved[:1]


def test_a_run_that_an_action_ends_saves_its_last_step(tmp_path):
    ended = lambda: True
    assert run(tmp_path, Watch(at=6, then=ended))[0] == 6
    assert layout.all_steps(str(tmp_path)) == [4, 6]


def test_a_run_that_ends_with_a_bad_state_is_not_saved_there(tmp_path, monkeypatch, capsys):
    save = checkpoints.Checkpointer.save

    def refuse(self, step, *arguments):
        if step == 6:
            raise checkpoints.NonFiniteStateError("x holds NaN")
        return save(self, step, *arguments)

    monkeypatch.setattr(checkpoints.Checkpointer, "save", refuse)
    assert run(tmp_path, Watch(at=6, then=lambda: True))[0] == 6
    assert layout.all_steps(str(tmp_path)) == [4]
    assert "x holds NaN" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad_steps", "steps", "taken"), [("skip", [1, 2, 3, 4, 5, 7, 8], 8), ("go_back", None, 10)]
)
def test_a_bad_batch_is_left_behind_if_asked(tmp_path, capsys, bad_steps, steps, taken):
    streams, watch = [], Watch()

    def stream(*args):
        streams.append(Spoiled(*args))
        return streams[-1]

    step, state, _ = run(tmp_path, watch, trainer={"bad_steps": bad_steps}, get_dataset_fn=stream)
    assert step == 8
    assert streams[0].taken == taken
    assert list(watch.losses) == steps or list(range(1, 9))
    assert jax.tree.all(jax.tree.map(lambda x: np.isfinite(x).all(), state.params))
    assert layout.all_steps(str(tmp_path)) == [4, 8]
    events = (tmp_path / "events.jsonl").read_text()
    if bad_steps == "skip":
        assert '"event": "skipped", "step": 6' in events
    else:
        assert '"event": "returned", "step": 4' in events
        assert "step 6" in capsys.readouterr().err


def test_a_rate_that_suits_another_optimizer_is_reported_or_refused(tmp_path, caplog):
    model, constant = toy.model(), schedules.create_learning_rate_scheduler("constant", 9.0)
    settings = {"trainer": {"learning_rate_fn": constant}, "dry_run": True}
    run(tmp_path / "run", model=model, **settings)
    assert "adafactor.Adafactor" in caplog.text
    model.optimizer_def = optimizers.muon()
    with pytest.raises(ValueError, match=r"optimizers.muon"):
        run(tmp_path / "run", model=model, **settings)


def test_a_schedule_that_does_not_count_from_the_checkpoint_is_refused(
    undisturbed, tmp_path, monkeypatch
):
    folder, *_ = undisturbed
    own = tmp_path / "own"
    shutil.copytree(f"{folder}/checkpoint_8", own / "checkpoint_8")
    restore = RestoreCheckpointConfig(f"{folder}/checkpoint_8", mode="specific")
    settings = {"restore": restore, "total_steps": 40, "dry_run": True}
    settings |= {"trainer": {"learning_rate_fn": warmed_up()}}
    monkeypatch.setattr(starting, "initial_state", kill)
    with pytest.raises(ValueError, match=r"step_offset to 8"):
        run(tmp_path / "new", **settings)
    run(own, **settings)  # a resumed run has begun its schedule before


# Refused by this name before the devices are used; tests/fakes/bad_values.py has more.
CONFIGS = {
    "utils.DatasetConfig.batch_size": {"train_dataset_cfg": toy.data(batch_size=7)},
    "utils.DatasetConfig.split": {"infer_eval_dataset_cfg": toy.data("test", pack=False)},
    "toy_bare": {"infer_eval_dataset_cfg": toy.data("validation", mixture_or_task_name=toy.BARE)},
    "exat": {
        "infer_eval_dataset_cfg": toy.data("validation", pack=False, batch_size=6),
        "save": {"keep_best": 1, "metric": "inference_eval/toy_copy/exat"},
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_bad_settings_are_refused_before_the_devices_are_used(name, tmp_path, monkeypatch):
    monkeypatch.setattr(starting, "initial_state", kill)  # the first use of the devices
    with pytest.raises(ValueError, match=name) as caught:
        run(tmp_path, **CONFIGS[name])
    assert "\n" not in str(caught.value)
    assert layout.all_steps(str(tmp_path)) == []


def test_a_checkpoint_of_another_shape_is_refused(undisturbed, tmp_path):
    folder, *_ = undisturbed
    restore = RestoreCheckpointConfig(f"{folder}/checkpoint_8", mode="specific")
    settings = {"model": toy.model(emb_dim=32), "total_steps": 9}
    with refuses(f"{folder}/checkpoint_8"):
        run(tmp_path, restore=restore, **settings)
    with refuses("T5Config.emb_dim", 32):
        run(folder, dry_run=True, **settings)


def test_a_corpus_is_asked_for_a_text_a_shard_before_the_state_is_made(tmp_path, monkeypatch):
    def refuse(self, num_shards):
        raise ValueError(f"{self.split}: too few texts for {num_shards} shards")

    monkeypatch.setattr("t5x.input_pipeline.corpora.Corpora.check_shards", refuse)
    monkeypatch.setattr(starting, "starting_state", None)
    for dry_run in (True, False):
        with pytest.raises(ValueError, match=r"train: too few texts for \d shards"):
            run(tmp_path / "run", dry_run=dry_run)


def test_a_dry_run_makes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(starting, "initial_state", kill)
    step, state, losses = run(tmp_path / "run", dry_run=True)
    assert (step, state, losses) == (0, None, {})
    assert not (tmp_path / "run").exists()


def test_a_period_of_0_or_none_is_never():
    plan = training_plan(100, 0, None, None, evaluates=True)
    assert (plan.eval_period, plan.save_period, plan.stats_period) == (None, None, None)
