"""Decoding and scoring many examples: results in order, whatever the batch and the mesh."""

import functools

import jax
import numpy as np
import pytest
import seqio

from fakes import toy
from t5x import checkpoints, decoding
from t5x.checkpointing.config import RestoreCheckpointConfig, SaveCheckpointConfig
from t5x.inference import predictor as inference
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs, to_disk

ANY = {"encoder_input_tokens": (1, 1), "decoder_input_tokens": (1, 1)}


@pytest.fixture(scope="module")
def case():
    """A model, its state over two devices, and 5 examples of unequal lengths."""
    model, partitioner = toy.model(), PjitPartitioner(devices=jax.devices()[:2])
    state = toy.state(state_specs(model, partitioner, ANY))
    random, examples = np.random.default_rng(0), []
    for length in (3, 8, 5, 2, 7):
        ids = np.zeros((2, 8), np.int32)
        ids[:, :length] = random.integers(3, 200, (2, length))
        shifted = np.pad(ids[1], (1, 0))[:-1]
        features = ("encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens")
        examples.append(dict(zip(features, (*ids, shifted), strict=True)))
    return model, partitioner, state, examples


@pytest.fixture(scope="module")
def predictor(case):
    model, partitioner, _, _ = case
    return inference.Predictor(model, partitioner, batch_size=4)


def test_results_come_in_order_and_a_short_batch_changes_none(case, predictor):
    model, _, state, examples = case
    scores = predictor("score", state.params, examples)
    assert len(scores) == 5
    score = jax.jit(model.score_batch)
    for example, found in zip(examples, scores, strict=True):
        alone = score(jax.device_get(state.params), {k: v[None] for k, v in example.items()})
        np.testing.assert_allclose(found, alone[0], rtol=1e-4)
    backwards = predictor("score", state.params, reversed(examples))
    np.testing.assert_allclose(backwards[::-1], scores, rtol=1e-5)


def test_buckets_change_no_result_and_compile_a_program_a_length(case):
    """Inputs of 24 places in 3 buckets: 8, 16 and 24."""
    model, partitioner, state, examples = case
    lengths = (3, 20, 8, 9, 2, 16, 12, 24, 1, 5)
    wide = []
    for i, length in enumerate(lengths):
        ids = np.zeros(24, np.int32)
        ids[:length] = np.random.default_rng(i).integers(3, 200, length)
        wide.append({**examples[i % 5], "encoder_input_tokens": ids})
    one = inference.Predictor(model, partitioner, 2)
    some = inference.Predictor(model, partitioner, 2, length_buckets=3)
    wanted = one("score", state.params, wide)
    np.testing.assert_allclose(some("score", state.params, wide), wanted, rtol=1e-4)
    assert one._steps["score"]._cache_size() == 1
    assert some._steps["score"]._cache_size() == 3
    some("score", state.params, wide[::-1])
    assert some._steps["score"]._cache_size() == 3


def test_each_mode_gives_its_results(case, predictor):
    _, _, state, examples = case
    ids = predictor("predict", state.params, iter(examples))
    pairs = predictor("predict_with_aux", state.params, examples)
    assert {x.shape for x in ids} == {(8,)}
    for one, (again, aux) in zip(ids, pairs, strict=True):
        np.testing.assert_array_equal(one, again)
        assert np.isscalar(aux["scores"].item())
    assert predictor("predict", state.params, []) == []


def test_a_batch_that_the_devices_do_not_divide_is_refused(case):
    model, partitioner, *_ = case
    with pytest.raises(ValueError, match=r"utils.DatasetConfig.batch_size is 5, not a multiple"):
        inference.Predictor(model, partitioner, batch_size=5)


@pytest.fixture(scope="module")
def saved(case, tmp_path_factory):
    """The state as a checkpoint of step 0; and one that lacks the encoder's norm."""
    model, partitioner, state, _ = case
    specs = state_specs(model, partitioner, ANY)
    whole = to_disk(state, specs)
    target = {**whole["target"], "encoder": dict(whole["target"]["encoder"])}
    del target["encoder"]["encoder_norm"]
    folder = tmp_path_factory.mktemp("saved")
    for name, tree in (("whole", whole), ("partial", {**whole, "target": target})):
        with checkpoints.Checkpointer(str(folder / name), SaveCheckpointConfig()) as checkpointer:
            checkpointer.save(0, tree)
    return folder


def restorer(partitions, path, seed=None, **settings):
    config = RestoreCheckpointConfig(path, mode="specific", **settings)
    return inference.ParamsRestorer(toy.model(), PjitPartitioner(partitions), config, seed)


@pytest.mark.parametrize("partitions", [1, 4])
def test_parameters_are_restored_without_the_optimizer_on_any_mesh(case, saved, partitions):
    path = f"{saved}/whole/checkpoint_0"
    params, step = restorer(partitions, path)(path)
    assert step == 0
    jax.tree.map(np.testing.assert_array_equal, params, jax.device_get(case[2].params))
    kernel = params["encoder"]["layers"]["mlp"]["wi"]["kernel"]
    assert kernel.sharding.shard_shape(kernel.shape) == (1, 16, 32 // partitions)


def test_parameters_may_be_rounded(saved):
    path = f"{saved}/whole/checkpoint_0"
    params, _ = restorer(1, path, dtype="bfloat16")(path)
    assert {str(x.dtype) for x in jax.tree.leaves(params)} == {"bfloat16"}


def test_what_a_checkpoint_lacks_is_drawn_only_with_a_seed(case, saved):
    path = f"{saved}/partial/checkpoint_0"
    with pytest.raises(ValueError, match=r"lacks target/encoder/encoder_norm/scale"):
        restorer(1, path)(path)
    with pytest.raises(ValueError, match=r"fallback_init_rng is None.* set fallback_init_rng"):
        restorer(1, path, fallback_to_scratch=True)
    params, _ = restorer(1, path, seed=3, fallback_to_scratch=True)(path)
    np.testing.assert_array_equal(params["encoder"]["encoder_norm"]["scale"], np.ones(16))
    wanted = jax.device_get(case[2].params["decoder"])
    jax.tree.map(np.testing.assert_array_equal, params["decoder"], wanted)


def test_metrics_are_computed_in_the_examples_order(case, monkeypatch, tmp_path):
    """A predictor that copies its inputs is right everywhere; one that shifts them, nowhere."""
    model, partitioner, state, _ = case
    cfg = toy.data("validation", batch_size=6)
    evaluator = inference.InferenceEvaluator(
        cfg, seqio.Evaluator, model, partitioner, str(tmp_path)
    )

    def copy(mode, params, examples):
        examples = list(examples)
        if mode == "score":
            return [float(i) for i in range(len(examples))]
        return [example["encoder_input_tokens"] for example in examples]

    monkeypatch.setattr(evaluator, "predictor", copy)
    results = evaluator.evaluate(state.params, 0)
    assert results == {toy.TASK: {"exact": 1.0, "likelihood": 9.5}}
    shifted = lambda mode, *args: copy(mode, *args)[1:] + copy(mode, *args)[:1]
    monkeypatch.setattr(evaluator, "predictor", shifted)
    assert evaluator.evaluate(state.params, 0)[toy.TASK]["exact"] < 0.5


@pytest.mark.parametrize("host", [0, 1])
def test_only_the_first_host_writes_predictions(case, tmp_path, monkeypatch, host):
    model, partitioner, _, _ = case
    monkeypatch.setattr(inference.jax, "process_index", lambda: host)
    writing = functools.partial(seqio.Evaluator, logger_cls=[seqio.JSONLogger])
    cfg = toy.data("validation", batch_size=6)
    evaluator = inference.InferenceEvaluator(cfg, writing, model, partitioner, str(tmp_path))
    assert len(evaluator.evaluator.loggers) == 1 - host
    assert [path.name for path in tmp_path.iterdir()] == ["inference_eval"][host:]


def test_all_evaluations_share_one_program_over_all_devices(case, tmp_path):
    model, partitioner, state, _ = case
    cfg = toy.data("validation", batch_size=6)
    evaluator = inference.InferenceEvaluator(
        cfg, seqio.Evaluator, model, partitioner, str(tmp_path)
    )
    for step in (0, 1):
        params = jax.tree.map(lambda x, step=step: x + step, state.params)
        assert set(evaluator.evaluate(params, step)) == {toy.TASK}
    steps = evaluator.predictor._steps
    compiled = {mode: step._cache_size() for mode, step in steps.items()}
    assert compiled == {"lay out": 1, "predict": 1, "score": 1, "predict_with_aux": 0}
    (batch, places, _), *_ = evaluator.predictor.batches(case[3])
    assert places == [0, 1, 2, 3, 4]
    inputs = batch["encoder_input_tokens"]
    assert inputs.sharding.shard_shape(inputs.shape) == (3, 8)


def test_samples_differ_from_batch_to_batch_and_not_from_time_to_time(case):
    """The same inputs twice, in other company: the draws of each place in a batch are others."""
    _, partitioner, state, examples = case
    sampling = toy.model()
    sampling.decode_fn = functools.partial(decoding.temperature_sample, topk=0, temperature=5.0)
    predictor = inference.Predictor(sampling, partitioner, 2)
    four = [examples[0], examples[1], examples[0], examples[2]]
    first, second, third, _ = (ids.tolist() for ids in predictor("predict", state.params, four))
    assert first != third
    again = [ids.tolist() for ids in predictor("predict", state.params, four[:2])]
    assert again == [first, second]


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match=r"toy_bare has no metric_fns"):
        inference.check_metrics(toy.data("validation", mixture_or_task_name=toy.BARE))
    with pytest.raises(
        ValueError, match=r"split is 'test', which toy_copy does not have; .*'train"
    ):
        inference.check_metrics(toy.data("test"))
    inference.check_metrics(toy.data("validation", mixture_or_task_name=toy.MIXED))
    tasks = inference.tasks_with_split(toy.data("validation", mixture_or_task_name=toy.MIXED))
    assert {task.name for task in tasks} == {toy.TASK, toy.BARE}
