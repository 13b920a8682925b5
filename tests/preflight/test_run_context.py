"""The context knows where a run starts, and reads remote files only where it may and can."""

import dataclasses
import threading

import pytest

from common.errors import UserError
from common.tables import FAILS, NotChecked, run_check
from fakes import valid_run
from preflight.checks import gin
from preflight.run_context import answer_within, is_local
from t5x.checkpointing.config import CheckpointConfig, RestoreCheckpointConfig
from tasks.corpus.catalog import Unreachable
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage.hub import Offline


def test_a_corpus_is_local_if_all_its_files_are(tmp_path):
    assert is_local(CorpusSource(str(tmp_path)))
    assert is_local(CorpusSource(files={"train": ["a*.jsonl", "b.txt"]}))
    assert not is_local(CorpusSource(files={"train": ["a.jsonl", "gs://bucket/b.jsonl"]}))
    assert not is_local(CorpusSource("user/name"))
    assert not is_local(CorpusSource("https://example.org/corpus"))


def test_steps_are_counted_from_where_the_run_starts():
    restore = RestoreCheckpointConfig("gs://bucket/checkpoint_1000000", "specific")
    save_and_restore = CheckpointConfig(valid_run.saving(), restore)
    context = valid_run.context("runs/none", checkpoint_cfg=save_and_restore, total_steps=1_000_100)
    assert (context.start.step, context.steps_left) == (1_000_000, 100)
    early = valid_run.context("runs/none", checkpoint_cfg=save_and_restore, total_steps=500)
    row = run_check("check", gin.periods, early)
    assert row.verdict == FAILS
    assert "starts at step 1000000" in row.figure


def test_the_restored_step_is_that_of_the_checkpoint(tmp_path):
    (tmp_path / "run/checkpoint_2000").mkdir(parents=True)
    (tmp_path / "run/checkpoint_2000/checkpoint").write_bytes(b"")
    for path, step in ((str(tmp_path / "run"), 2000), ("gs://bucket/run", None)):
        restore = RestoreCheckpointConfig(path, "latest")
        save_and_restore = CheckpointConfig(valid_run.saving(), restore)
        assert (
            valid_run.context("runs/none", checkpoint_cfg=save_and_restore).start.known_step == step
        )
    save_and_restore = CheckpointConfig(valid_run.saving(), None)
    assert valid_run.context("runs/none", checkpoint_cfg=save_and_restore).start.known_step == 0


def test_hosts_divide_the_shards_and_shards_the_batch():
    for rows, tpu in ((16, "v4-8"), (24, "v4-64"), (128, "v4-32")):
        data = dataclasses.replace(valid_run.TRAIN, batch_size=rows)
        context = valid_run.context(tpu=tpu, train_dataset_cfg=data)
        assert rows % context.shards == context.shards % context.tpu.hosts == 0


def test_a_corpus_that_timed_out_is_not_read_again(monkeypatch):
    context = valid_run.context()
    source = context.task.source
    monkeypatch.setattr("preflight.run_context.TIMEOUT_S", 0.01)
    with pytest.raises(NotChecked, match="has not answered"):
        context.read(source, threading.Event().wait)
    with pytest.raises(NotChecked, match="has not answered"):
        context.read(source, lambda: pytest.fail("read again"))


def test_the_files_of_the_split_trained_on_are_listed(write_corpus, task):
    source = CorpusSource(write_corpus(["Ana are mere."], files=3))
    found = valid_run.context(**task(source)).list_files()
    assert [file.url.rpartition("/")[2] for file in found] == [f"train-{i}.jsonl" for i in range(3)]


@pytest.mark.parametrize(
    ("error", "raised"),
    [(Unreachable("x"), NotChecked), (Offline("x"), NotChecked), (UserError("x"), UserError)],
)
def test_only_network_errors_are_not_checked(error, raised):
    def refuse():
        raise error

    with pytest.raises(raised):
        answer_within(5, refuse, "the corpus")
    with pytest.raises(KeyError):
        answer_within(5, lambda: {}["x"], "x")
