"""Examples of very different lengths fill their rows, on any hosts and after a kill."""

import dataclasses

import numpy as np
import pytest
import seqio

from fakes.arrays import assert_equal_batches
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.stream import TrainStream, eval_sets
from tasks import mixtures, romanian, vocabularies  # noqa: F401  registers ro_mini
from tasks.cache import cached
from tasks.objectives import ul2

T5 = seqio.EncDecFeatureConverter
ROWS, STEPS = 16, 4
VOCABULARY = vocabularies.sentencepiece(vocabularies.ro_mini_model)
LENGTHS = {"inputs": 256, "targets": ul2.UL2.lengths(256, VOCABULARY).targets}
CFG = DatasetConfig("ro_mini_ul2", LENGTHS, "train", ROWS, shuffle=True, seed=0, pack=True)


def start(rows=(0, ROWS), cfg=CFG):
    return TrainStream(cfg, T5, rows, seed=0, shards=4)


def full(batches, name):
    return np.mean([batch[name] > 0 for batch in batches])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The batches of one host, and the folders of its position before each of them."""
    stream, batches, folders = start(), [], []
    for step in range(STEPS):
        folders.append(str(tmp_path_factory.mktemp(f"{step}")))
        stream.save(folders[-1])
        batches.append(next(stream))
    stream.close()
    return batches, folders


def test_rows_of_real_text_are_full():
    stream = TrainStream(dataclasses.replace(CFG, batch_size=256), T5, (0, 256), seed=0, shards=2)
    batches = [next(stream) for _ in range(5)][1:]  # less text is not of equal parts
    stream.close()
    assert full(batches, "decoder_target_tokens") >= 0.9
    assert full(batches, "encoder_input_tokens") >= 0.98


@pytest.mark.parametrize(("step", "hosts"), [(0, 4), (1, 2), (3, 1)])
def test_rows_are_the_same_on_any_hosts_and_after_a_kill_at_any_step(undisturbed, step, hosts):
    batches, folders = undisturbed
    for host in {0, hosts - 1}:
        rows = (host * ROWS // hosts, (host + 1) * ROWS // hosts)
        part = start(rows)
        part.restore(folders[step])
        wanted = [{k: v[slice(*rows)] for k, v in batch.items()} for batch in batches[step:]]
        assert_equal_batches([next(part) for _ in wanted], wanted)
        part.close()


def test_mixtures_caches_and_evaluation_pack_alike():
    mixture = mixtures.add("ul2_and_spans", {"ro_mini_ul2": 1, "ro_mini_span_corruption": 1})
    try:
        bounded = mixtures.add("ul2_twice", {"ro_mini_ul2": 1}, epochs={"ro_mini_ul2": 2})
        pregenerated = cached.add_pregenerated("ro_mini_ul2", LENGTHS)
        for provider in (mixture, bounded, pregenerated):
            cfg = dataclasses.replace(CFG, mixture_or_task_name=provider)
            assert cfg.open_rows == ul2.UL2.open_rows
    finally:
        seqio.MixtureRegistry.remove("ul2_and_spans")
        seqio.MixtureRegistry.remove("ul2_twice")
        for name in ("ro_mini_ul2_2_epochs", cached.pregenerated_name("ro_mini_ul2", LENGTHS)):
            seqio.TaskRegistry.remove(name)
    assert dataclasses.replace(CFG, mixture_or_task_name="ro_mini_span_corruption").open_rows == 1
    measured = dataclasses.replace(CFG, split="validation", shuffle=False, batch_size=2)
    (batches,) = eval_sets(measured, T5, (0, 2), eval_steps=8).values()
    assert full(batches, "encoder_input_tokens") >= 0.95
