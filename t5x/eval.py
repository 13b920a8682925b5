r"""Evaluates checkpoints by a task's own metrics on decoded or scored examples.

python -m t5x.eval --gin_file=gin/ro_t5x_tiny.gin --gin_file=t5x/configs/runs/eval.gin \
  --gin.CHECKPOINT_PATH='"runs/tiny"' --gin.utils.RestoreCheckpointConfig.mode='"all"' \
  --gin.EVAL_OUTPUT_DIR='"runs/tiny_eval"'

Only parameters are restored. EVAL_OUTPUT_DIR then has `config.gin`; under `inference_eval/` the
files of `seqio.Evaluator`'s loggers; the predictions of the last checkpoint evaluated in
`generated_predictions.jsonl`; the libraries' output in `log_<host>.txt`.
"""

import sys

if __name__ == "__main__":  # before any library is imported
    if not __package__:  # started as `python t5x/eval.py`
        sys.path[0] = sys.path[0].removesuffix("t5x")
    from common import log

    log.start()

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import jax
import seqio

from common import log
from common.errors import UserError
from t5x import gin_utils
from t5x.checkpointing import layout
from t5x.checkpointing.config import RestoreCheckpointConfig, checkpoint_paths
from t5x.cli import dry_run as dry_run_table
from t5x.cli import main
from t5x.inference import evaluator
from t5x.inference.params import ParamsRestorer
from t5x.input_pipeline.config import DatasetConfig
from t5x.models import EncoderDecoderModel
from t5x.partitioning import PjitPartitioner
from t5x.start import preconditions

Metrics = dict[str, dict[str, Any]]


def evaluate(
    *,
    model: EncoderDecoderModel,
    dataset_cfg: DatasetConfig,
    restore_checkpoint_cfg: RestoreCheckpointConfig,
    partitioner: PjitPartitioner,
    output_dir: str,
    inference_evaluator_cls: Callable[..., seqio.Evaluator] = seqio.Evaluator,
    summarize_config_fn: Callable[..., None] = gin_utils.summarize_gin_config,
    fallback_init_rng: int | None = None,
    length_buckets: int = 4,
    dry_run: bool = False,
) -> dict[int, Metrics]:
    """Evaluate each checkpoint that `restore_checkpoint_cfg` names, in order.

    Args:
      dataset_cfg: the examples to decode and measure.
      restore_checkpoint_cfg: the checkpoints to restore.
      output_dir: the folder of all files.
      inference_evaluator_cls: seqio evaluator with its gin bindings.
      summarize_config_fn: (model_dir, writer, step), writes the configuration to a file.
      fallback_init_rng: seed for parameters that a checkpoint lacks; None to refuse it.
      length_buckets: maximum number of input lengths to compile; see `predictor.Predictor`.
      dry_run: build and check everything, then return without decoding.

    Returns:
      Metrics by step and task; only the first host has tasks.

    Raises:
      UserError: a setting is wrong; raised before anything is decoded.
    """
    preconditions.check_inference(model, partitioner, dataset_cfg, output_dir, lengths=False)
    preconditions.check_metrics(dataset_cfg)
    paths = checkpoint_paths(restore_checkpoint_cfg)
    check_steps(paths)
    restorer = ParamsRestorer(model, partitioner, restore_checkpoint_cfg, fallback_init_rng)
    preconditions.check_memory(model, restorer.specs.state.params, partitioner)
    if dry_run:
        dry_run_table.show_inference(dataset_cfg, paths, output_dir)
        return {}

    log.write_to(output_dir, jax.process_index())
    summarize_config_fn(output_dir, None, 0)
    measure = evaluator.InferenceEvaluator(
        dataset_cfg, inference_evaluator_cls, model, partitioner, output_dir, length_buckets
    )
    results = {}
    for path in paths:
        params, step = restorer(path)
        results[step] = measure.evaluate(params, step)
        del params  # freed before the next are restored
        if jax.process_index() == 0:
            evaluator.publish_predictions(output_dir, results[step], step)
            print_metrics(path, results[step])
    if jax.process_index() == 0:
        for line in measure.data_summary():
            print(line, flush=True)
    return results


def check_steps(paths: Sequence[str]) -> None:
    """Raise UserError if two checkpoints are of one step, by which the files are named."""
    first: dict[int, str] = {}
    for path in paths:
        if (step := layout.step_of(path)) is None:
            continue
        if step in first:
            raise UserError(
                "RestoreCheckpointConfig.path",
                path,
                f"of the same step as {first[step]}, so that its predictions would overwrite those",
                "evaluate each into an EVAL_OUTPUT_DIR of its own",
            )
        first[step] = path


def print_metrics(path: str, results: Metrics) -> None:
    """Print the numbers among the metrics, a line per task."""
    for task, values in results.items():
        figures = [f"{k} {v:.4g}" for k, v in sorted(values.items()) if isinstance(v, numbers.Real)]
        print(f"{path}  {task}:  {'  '.join(figures)}", flush=True)


if __name__ == "__main__":
    main.run(evaluate)
