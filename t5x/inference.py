"""Decoding and scoring of many examples: full batches of one shape, results in order.

predictor = Predictor(model, partitioner, batch_size=32)
ids = predictor("predict", params, examples)           # one int32 [T] an example
evaluator = InferenceEvaluator(cfg, seqio.Evaluator, model, partitioner, model_dir)
evaluator.evaluate(params, step)                       # {task: {metric: value}}
"""

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import seqio
import tensorflow as tf
from absl import logging

from t5x.batches import DatasetConfig, host_rows
from t5x.partitioning import PjitPartitioner

MODES = ("predict", "score", "predict_with_aux")
Example = Mapping[str, np.ndarray]


class Predictor:
    """Applies a model's decoding or scoring to examples, `batch_size` at a time.

    Every host is given all examples, computes its rows of each batch and gets all results.
    """

    def __init__(self, model: Any, partitioner: PjitPartitioner, batch_size: int):
        partitioner.check_batch(batch_size, None, "utils.DatasetConfig.batch_size")
        self.model, self.partitioner, self.batch_size = model, partitioner, batch_size

    @functools.cached_property
    def _steps(self) -> dict[str, Callable]:
        def compiled(function):
            def traced(params, batch):
                with self.partitioner.activations():
                    return function(params, batch)

            return jax.jit(traced, out_shardings=self.partitioner.replicated)

        model = self.model
        return {
            "predict": compiled(model.predict_batch),
            "score": compiled(model.score_batch),
            "predict_with_aux": compiled(model.predict_batch_with_aux),
        }

    def __call__(self, mode: str, params: Any, examples: Iterable[Example]) -> list[Any]:
        """Results of `mode` for each example, in their order.

        Returns:
          'predict': int32 [T]; 'score': float32 scalars; 'predict_with_aux': pairs of ids and a
          dict of values.
        """
        results = []
        for batch, count in self._batches(examples):
            output = jax.device_get(self._steps[mode](params, batch))
            results += [jax.tree.map(lambda x, i=i: x[i], output) for i in range(count)]
        return results

    def _batches(self, examples: Iterable[Example]) -> Iterator[tuple[dict[str, jax.Array], int]]:
        """Global batches of one shape, the last one filled up with padding; and real rows."""
        first, end = host_rows(self.partitioner, self.batch_size)
        sharding = self.partitioner.batch_sharding
        examples = iter(examples)
        while group := list(itertools.islice(examples, self.batch_size)):
            batch = {}
            for name in group[0]:
                rows = np.stack([np.asarray(example[name]) for example in group])
                missing = self.batch_size - len(group)
                rows = np.pad(rows, [(0, missing), *[(0, 0)] * (rows.ndim - 1)])[first:end]
                batch[name] = jax.make_array_from_process_local_data(sharding, rows)
            yield batch, len(group)


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
    ):
        self.predictor = Predictor(model, partitioner, cfg.batch_size)
        self.evaluator = evaluator_cls(
            mixture_or_task_name=cfg.mixture_or_task_name,
            feature_converter=model.FEATURE_CONVERTER_CLS(pack=False),
            eval_split=cfg.split,
            use_cached=cfg.use_cached,
            seed=cfg.seed,
            sequence_length=cfg.task_feature_lengths,
            log_dir=os.path.join(log_dir, "inference_eval") if jax.process_index() == 0 else None,
            use_memory_cache=cfg.use_memory_cache,
        )
        if not self.evaluator.eval_tasks:
            raise ValueError(
                f"{cfg.mixture_or_task_name} has no metric_fns on split {cfg.split!r}, so decoding "
                "it would measure nothing; give its task metric_fns or set "
                "train.infer_eval_dataset_cfg to None."
            )

    def evaluate(self, params: Any, step: int) -> dict[str, dict[str, Any]]:
        """Metrics by task; seqio's loggers write them and the predictions."""

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
