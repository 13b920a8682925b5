"""Decoding and scoring of many examples: full batches of one shape, results in order.

params, step = ParamsRestorer(model, partitioner, restore_checkpoint_cfg)(path)
predictor = Predictor(model, partitioner, batch_size=32, length_buckets=4)
ids = predictor("predict", params, examples)           # one int32 [T] an example
evaluator = InferenceEvaluator(cfg, seqio.Evaluator, model, partitioner, model_dir)
evaluator.evaluate(params, step)                       # {task: {metric: value}}
"""

import functools
import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from t5x.batches import host_rows
from t5x.checkpointing.config import RestoreCheckpointConfig
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.checkpointing.restore import restore
from t5x.inference.continuous_batching import Pool
from t5x.input_pipeline import record_counts
from t5x.input_pipeline.config import DatasetConfig
from t5x.partitioning import PjitPartitioner, gathered
from t5x.train_state import initial_state, state_specs, to_disk

MODES = ("predict", "score", "predict_with_aux")
Example = Mapping[str, np.ndarray]


class Predictor:
    """Applies a model's decoding or scoring to examples, `batch_size` at a time.

    Every host is given all examples, computes its rows of each batch and gets all results. With
    several `length_buckets` examples of about the same inputs length share a batch, whose inputs
    are padded to the least of so many lengths: short ones do not pay for long ones, and as many
    programs are compiled at most. Results are those of one bucket, padding being never looked at.
    On a single device rows that are not done then go on together, see `pooled`.
    """

    def __init__(
        self, model: Any, partitioner: PjitPartitioner, batch_size: int, length_buckets: int = 1
    ):
        partitioner.check_batch(batch_size, None, "utils.DatasetConfig.batch_size")
        self.model, self.partitioner, self.batch_size = model, partitioner, batch_size
        self.length_buckets = length_buckets
        self.passing: Callable[[Iterable], Iterable] = iter  # what batches go through

    @functools.cached_property
    def _steps(self) -> dict[str, Callable]:
        def compiled(function):
            def traced(params, batch, number):
                rng = jax.random.fold_in(jax.random.key(0), number)
                with self.partitioner.activations():
                    return function(params, batch, rng)

            return jax.jit(traced, out_shardings=self.partitioner.replicated)

        model = self.model
        return {
            "lay out": jax.jit(getattr(model, "decoding_params", lambda params: params)),
            "predict": compiled(model.predict_batch),
            "score": compiled(lambda params, batch, _: model.score_batch(params, batch)),
            "predict_with_aux": compiled(
                lambda params, batch, rng: model.predict_batch_with_aux(
                    params, batch, decode_rng=rng
                )
            ),
        }

    @functools.cached_property
    def _pool(self) -> Pool | None:
        if self.length_buckets == 1 or jax.process_count() > 1 or self.partitioner.mesh.size > 1:
            return None
        suspends = getattr(self.model, "suspends", False)
        return Pool(self.model, self.partitioner) if suspends else None

    def __call__(self, mode: str, params: Any, examples: Iterable[Example]) -> list[Any]:
        """Results of `mode` for each example, in their order.

        Returns:
          'predict': int32 [T]; 'score': float32 scalars; 'predict_with_aux': pairs of ids and a
          dict of values.
        """
        params = self.laid_out(params) if mode != "score" else self._whole(params)
        batches = self.passing(self.batches(examples))
        if mode != "score" and self._pool:
            found = self._pool.decode(params, batches)
            pairs = [found[place] for place in range(len(found))]
            return pairs if mode == "predict_with_aux" else [ids for ids, _ in pairs]
        results, pending = {}, None
        for batch, places, number in batches:
            begun = self._steps[mode](params, batch, number), places
            if pending:  # read while the next batch is computed
                results |= _rows(*pending)
            pending = begun
        results |= _rows(*pending) if pending else {}
        return [results[place] for place in range(len(results))]

    def _whole(self, params: Any) -> Any:
        # Along `data`: a decoder that gathered its parameters at each token would only wait.
        return jax.device_put(params, jax.tree.map(lambda x: gathered(x.sharding), params))

    def laid_out(self, params: Any) -> Any:
        """The parameters as decoding reads them, to be used for many batches."""
        return self._steps["lay out"](self._whole(params))

    def lower(
        self, mode: str, params: Any, example: Mapping[str, jax.ShapeDtypeStruct]
    ) -> Iterator[jax.stages.Lowered]:
        """The programs of `mode` for batches of examples of these shapes, one a bucket.

        Args:
          mode: one of `MODES`.
          params: ShapeDtypeStructs of the network's parameters, with shardings.
          example: features of one example.
        """
        struct = lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
        params = jax.tree.map(lambda x: struct(x, gathered(x.sharding)), params)
        if mode != "score":
            lay_out = self._steps["lay out"].lower(params)
            places = lay_out.compile().output_shardings
            params = jax.tree.map(struct, lay_out.out_info, places)
        rows = self.partitioner.batch_sharding
        whole = _whole_length(example)
        step = _bucket(whole, self.length_buckets)
        for kept in [*range(step, whole, step), whole]:
            batch = {
                name: jax.ShapeDtypeStruct((self.batch_size, *shape), x.dtype, sharding=rows)
                for name, x in example.items()
                for shape in [(kept, *x.shape[1:]) if _is_cut(name, x, whole) else x.shape]
            }
            if mode != "score" and self._pool:
                yield from self._pool.lower(params, batch)
            else:
                yield self._steps[mode].lower(params, batch, np.uint32(0))

    def batches(
        self, examples: Iterable[Example]
    ) -> Iterator[tuple[dict[str, jax.Array], list[int], np.uint32]]:
        """Global batches, the examples' places that their rows are wanted for, and a number.

        Samples are drawn by the number, which the inputs give: others in each batch, and the same
        whenever the same inputs come together.

        The last one is filled up by its last row, which ends as soon when decoded as it does.
        """
        first, end = host_rows(self.partitioner, self.batch_size)
        sharding = self.partitioner.batch_sharding
        for group, places in self._groups(examples):
            batch = {}
            for name in group[0]:
                rows = np.stack([np.asarray(example[name]) for example in group])
                missing = self.batch_size - len(group)
                rows = np.pad(rows, [(0, missing), *[(0, 0)] * (rows.ndim - 1)], mode="edge")
                rows = rows[first:end]
                batch[name] = jax.make_array_from_process_local_data(sharding, rows)
            inputs = group[0].keys() & {"encoder_input_tokens"}
            content = b"".join(np.asarray(one[name]).tobytes() for one in group for name in inputs)
            yield batch, places, np.uint32(zlib.crc32(content))

    def _groups(self, examples: Iterable[Example]) -> Iterator[tuple[list[Example], list[int]]]:
        """Examples that share a batch, their inputs cut to its bucket, with their places."""
        numbered = enumerate(examples)
        if self.length_buckets > 1:
            numbered = sorted(numbered, key=lambda pair: _length(pair[1]), reverse=True)
        numbered = iter(numbered)
        while pairs := list(itertools.islice(numbered, self.batch_size)):
            places, group = map(list, zip(*pairs, strict=True))
            if self.length_buckets > 1:
                group = _cut(group, self.length_buckets)
            yield group, places


def _rows(output: Any, places: list[int]) -> dict[int, Any]:
    output = jax.device_get(output)
    return {place: jax.tree.map(lambda x, i=i: x[i], output) for i, place in enumerate(places)}


def _length(example: Example) -> int:
    """Tokens of the inputs up to the last that is no padding."""
    ids = example.get("encoder_input_tokens", ())
    return int(np.max(np.nonzero(ids)[0], initial=-1)) + 1


def _cut(group: list[Example], buckets: int) -> list[Example]:
    """The examples with what their encoder reads cut to the least bucket that holds them all."""
    whole, step = _whole_length(group[0]), _bucket(_whole_length(group[0]), buckets)
    kept = min(whole, step * max(1, -(-max(map(_length, group)) // step)))
    return [{k: x[:kept] if _is_cut(k, x, whole) else x for k, x in one.items()} for one in group]


def _bucket(whole: int, buckets: int) -> int:
    """Buckets are equal parts of the whole length, rounded up to multiples of 8."""
    return 8 * max(1, -(-whole // (8 * buckets)))


def _whole_length(example: Mapping[str, Any]) -> int:
    return next(iter(np.shape(example.get("encoder_input_tokens", ()))), 0)


def _is_cut(name: str, x: Any, whole: int) -> bool:
    return name.startswith("encoder_") and np.shape(x)[:1] == (whole,)


class ParamsRestorer:
    """Restores a model's parameters, without the optimizer, from one checkpoint or several.

    Args:
      model: see `models.EncoderDecoderModel`.
      partitioner: says where each part of each parameter goes.
      cfg: strictness and names.
      fallback_init_rng: seed of the parameters that a checkpoint may lack; None for none.

    Raises:
      ValueError: `cfg` lets parameters be missing, and there is no seed for them.
    """

    def __init__(
        self,
        model: Any,
        partitioner: PjitPartitioner,
        cfg: RestoreCheckpointConfig,
        fallback_init_rng: int | None = None,
    ):
        if cfg.fallback_to_scratch and fallback_init_rng is None:
            raise ValueError(
                "RestoreCheckpointConfig.fallback_to_scratch is True and fallback_init_rng is "
                "None, so what the checkpoint lacks cannot be drawn; set fallback_init_rng to a "
                "number."
            )
        self.model, self.cfg, self.seed = model, cfg, fallback_init_rng
        any_shapes = {"encoder_input_tokens": (1, 1), "decoder_input_tokens": (1, 1)}
        self.specs = state_specs(model, partitioner, any_shapes)
        places = jax.tree.map(gathered, self.specs.shardings.params)  # for a `Predictor`
        self._stack = jax.jit(stack_layers, out_shardings=places)

    def __call__(self, path: str) -> tuple[Any, int]:
        """The parameters in the checkpoint `path`, and its step.

        Raises:
          ValueError: what is there does not fit; see `restore`.
        """
        wanted = {"target": self.specs.on_disk["target"]}
        initial = None if self.seed is None else self._initial
        restored = restore(path, wanted, self.cfg, initial=initial)
        return self._stack(restored.state["target"]), restored.step

    def _initial(self) -> dict[str, Any]:
        fresh = initial_state(self.model, self.specs, jax.random.key(self.seed))
        return {"target": to_disk(fresh, self.specs)["target"]}


class InferenceEvaluator:
    """Decodes and scores the tasks of `cfg` that have metrics, by seqio's evaluator.

    Raises:
      ValueError: no task of the mixture has metric functions.
    """

    def __init__(
        self,
        cfg: DatasetConfig,
        evaluator_cls: Callable[..., seqio.Evaluator],
        model: Any,
        partitioner: PjitPartitioner,
        log_dir: str,
        length_buckets: int = 1,
    ):
        self.cfg = cfg
        self.predictor = Predictor(model, partitioner, cfg.batch_size, length_buckets)
        check_metrics(cfg)
        if jax.process_index() == 0:
            logs = {"log_dir": os.path.join(log_dir, "inference_eval")}
            tf.io.gfile.makedirs(logs["log_dir"])  # not all loggers of seqio do
        else:
            logs = {"log_dir": None, "logger_cls": ()}
        self.evaluator = evaluator_cls(
            mixture_or_task_name=cfg.mixture_or_task_name,
            feature_converter=model.FEATURE_CONVERTER_CLS(pack=False),
            eval_split=cfg.split,
            use_cached=cfg.use_cached,
            seed=cfg.seed,
            sequence_length=cfg.task_feature_lengths,
            use_memory_cache=cfg.use_memory_cache,
            **logs,
        )

    def data_summary(self) -> list[str]:
        """Return a line per task of which some data was skipped or cut."""
        datasets = self.evaluator.cached_task_datasets
        examples = {name: int(dataset.cardinality()) for name, dataset in datasets.items()}
        return record_counts.summaries(self.cfg, examples)

    def evaluate(
        self, params: Any, step: int, passing: Callable[[Iterable], Iterable] = iter
    ) -> dict[str, dict[str, Any]]:
        """Metrics by task; seqio's loggers write them and the predictions.

        Batches go through `passing`, which may raise.
        """
        self.predictor.passing = passing

        def run(mode: str, dataset: tf.data.Dataset, *_) -> list[tuple[int, Any]]:
            indices, examples = [], []
            for index, example in dataset.as_numpy_iterator():
                indices.append(int(index))
                examples.append(example)
            outputs = self.predictor(mode, params, examples)
            return list(zip(indices, outputs, strict=True))

        def predict_with_aux(dataset, *_):
            pairs = run("predict_with_aux", dataset)
            ids = [(index, output[0].tolist()) for index, output in pairs]
            names = pairs[0][1][1] if pairs else {}
            return ids, {name: [output[1][name] for _, output in pairs] for name in names}

        def predict(dataset, *_):
            return [(index, ids.tolist()) for index, ids in run("predict", dataset)]

        future, _ = self.evaluator.evaluate(
            compute_metrics=jax.process_index() == 0,
            step=step,
            predict_fn=predict,
            score_fn=functools.partial(run, "score"),
            predict_with_aux_fn=predict_with_aux,
        )
        results = future.result() if jax.process_index() == 0 else {}
        logging.info("Inference metrics at step %d: %s", step, results)
        return {task: dict(values) for task, values in results.items()}


def tasks_with_split(cfg: DatasetConfig) -> list[seqio.Task]:
    """The tasks of a mixture that have the split that is asked for.

    Raises:
      ValueError: none has it.
    """
    tasks = seqio.get_subtasks(cfg.provider)
    there = [task for task in tasks if cfg.split in (task.splits or ())]
    if not there:
        splits = sorted({split for task in tasks for split in task.splits or ()})
        raise ValueError(
            f"DatasetConfig.split is {cfg.split!r}, which {cfg.mixture_or_task_name} does not "
            f"have; set it to one of {splits}."
        )
    return there


def check_metrics(cfg: DatasetConfig) -> None:
    """Refuses what seqio's evaluator would pass over.

    Raises:
      ValueError: no task has the split, or none of those that have it has metrics.
    """
    if not any(task.metric_objs for task in tasks_with_split(cfg)):
        raise ValueError(
            f"{cfg.mixture_or_task_name} has no metric_fns, so decoding it would measure nothing; "
            "name another MIXTURE_OR_TASK_NAME, or leave train.infer_eval_dataset_cfg at None."
        )


def check_decoding(model: Any) -> None:
    """Has the model's `decode_fn` look at what it was set to, if it can before it decodes.

    Raises:
      ValueError: its own.
    """
    check = getattr(getattr(model, "decode_fn", None), "check", None)
    if check is not None:
        check()
