"""Measures a task by its own metrics, through seqio's evaluator."""

import functools
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import jax
import seqio
import tensorflow as tf
from absl import logging

from t5x.array_types import Params
from t5x.inference.predictor import Predictor
from t5x.input_pipeline import record_counts
from t5x.input_pipeline.config import DatasetConfig
from t5x.partitioning import PjitPartitioner

PREDICTIONS_FILE = "generated_predictions.jsonl"


class InferenceEvaluator:
    """Decodes and scores the tasks of `cfg` that have metrics."""

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
        logs: dict[str, Any] = {"log_dir": None, "logger_cls": ()}
        if jax.process_index() == 0:
            logs = {"log_dir": os.path.join(log_dir, "inference_eval")}
            tf.io.gfile.makedirs(logs["log_dir"])  # some of seqio's loggers do not
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
        """Return a line for each task that skipped or cut some data."""
        datasets = self.evaluator.cached_task_datasets
        examples = {name: int(dataset.cardinality()) for name, dataset in datasets.items()}
        return record_counts.summaries(self.cfg, examples)

    def evaluate(
        self, params: Params, step: int, passing: Callable[[Iterable], Iterable] = iter
    ) -> dict[str, dict[str, Any]]:
        """Return metrics by task, which seqio's loggers also write.

        `passing` wraps the iteration over batches.
        """

        def run(mode: str, dataset: tf.data.Dataset, *_) -> list[tuple[int, Any]]:
            pairs = list(dataset.as_numpy_iterator())
            outputs = self.predictor(mode, params, [example for _, example in pairs], passing)
            return [(int(i), output) for (i, _), output in zip(pairs, outputs, strict=True)]

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


def publish_predictions(folder: str, tasks: Iterable[str], step: int) -> None:
    """Join the predictions that `seqio.JSONLogger` wrote at `step` in one file.

    A line is {"task": …, "step": 1001000, "input": {…}, "target": …, "prediction": …}.
    """
    logged = [(task, f"{folder}/inference_eval/{task}-{step:06}.jsonl") for task in tasks]
    logged = [(task, path) for task, path in logged if tf.io.gfile.exists(path)]
    if not logged:
        return
    path = os.path.join(folder, PREDICTIONS_FILE)
    with tf.io.gfile.GFile(f"{path}.tmp", "w") as file:
        for task, source in logged:
            with tf.io.gfile.GFile(source) as lines:
                for line in lines:
                    prediction = {"task": task, "step": step, **json.loads(line)}
                    file.write(json.dumps(prediction, ensure_ascii=False) + "\n")
    tf.io.gfile.rename(f"{path}.tmp", path, overwrite=True)
