"""Names of upstream T5X that gin files may use and this trainer has not: ignored, or left out.

    ignores(train, "use_orbax")                # True, with a warning the first time
    left_out("models.DecoderOnlyModel")        # "… is not part of this trainer: use models.…"

`IGNORED` has the arguments without which a run does the same; gin files may bind them.
`LEFT_OUT` has the modules, classes, functions and arguments that are an error, with what to do.
"""

import functools
import inspect
from typing import Any

from absl import logging

from t5x.cli.gin_values import OUR_PACKAGES

_ARRAYS = "all arrays are distributed jax.Arrays"
_READING = "upstream T5X reads no seqio task by it either"
_OWN_METRICS = "t5x.eval measures a task's own metrics; train reports the loss"

_OF_STATE = {
    "train_state_initializer_cls": "the state is made by t5x.train_state",
    "use_orbax": "checkpoints are saved by Orbax, and both kinds are read",
}
_OF_ARRAYS = dict.fromkeys(("use_gda", "use_jax_array"), _ARRAYS)

# Arguments by function or class, with the reason.
IGNORED: dict[str, dict[str, str]] = {
    "train": {
        **_OF_STATE,
        **_OF_ARRAYS,
        "concurrent_metrics": "metrics are always read while the next step runs",
        "gc_period": "no step leaves garbage that must be collected at the same time on all hosts",
    },
    "evaluate": {
        **dict.fromkeys(("training_evaluator_cls", "train_eval_get_dataset_fn"), _OWN_METRICS),
        **_OF_STATE,
        **_OF_ARRAYS,
    },
    "infer": {
        **_OF_STATE,
        **_OF_ARRAYS,
        "merge_fn": "results are appended in order, and merge_chunked_results = False keeps parts",
        "checkpoint_ds_iter": "progress is the number of lines written",
    },
    "precompile": _OF_ARRAYS,
    "DatasetConfig": dict.fromkeys(
        ("runtime_preprocessors", "num_prefetch_threads", "num_workers"), _READING
    ),
    "SaveCheckpointConfig": {"use_gda": _ARRAYS},
    "RestoreCheckpointConfig": {"use_gda": _ARRAYS},
    "PjitPartitioner": {"use_cpu_pjit": "a CPU is used like any other device"},
    "Trainer": dict.fromkeys(("eval_names", "summary_dir"), "train sets it"),
    "beam_search": {
        "initial_index": "the model starts at position 0 and feeds a prompt from there",
        "min_log_prob": "the search ends once no beam can improve the result",
    },
}

# What to do instead, and the names. One with a dot is found only under its module.
LEFT_OUT: dict[str, str] = {
    "use models.EncoderDecoderModel": "BaseModel BaseTransformerModel DecoderOnlyModel "
    "EncoderOnlyModel decoder_only models.remove_prefix",
    "derive a class from models.EncoderDecoderModel, whose loss_fn and eval_fn return losses and "
    "metrics": "compute_metrics compute_base_metrics compute_weighted_accuracy "
    "count_packed_examples",
    "use %VOCABULARY": "get_input_vocabulary get_output_vocabulary",
    "use a network whose only variables are its parameters": "flax_mutables FlaxOptimTrainState "
    "InferenceState",
    "leave the binding out": "WeightMetricsComputer weight_metrics_computer MetricsManager",
    "use adafactor.Adafactor.logical_factor_rules": "HParamMap HeuristicRule factor_map "
    "factor_name_to_factordim",
    "use one optimizer, adafactor.Adafactor or optimizers.chain": "MultiOptimizer",
    "use optimizers.chain.transformations = [@optax.…()], which takes any optimizer of optax": (
        "wrap_optax_optimizer OptaxWrapper OptaxStatePartitionRules optimizers.adabelief "
        "optimizers.adagrad optimizers.adam optimizers.amos optimizers.dpsgd optimizers.fromage "
        "optimizers.lamb optimizers.lars optimizers.lion optimizers.noisy_sgd optimizers.radam "
        "optimizers.rmsprop optimizers.sgd optimizers.yogi"
    ),
    "derive a class from optimizers.OptimizerDef": "optimizers.Optimizer OptimizerState "
    "OptimizerType OptimizerDefType hyper_params",
    "use partitioning.PjitPartitioner": "ModelBasedPjitPartitioner BasePjitPartitioner "
    "BasePartitioner LocalChunker LocalChunkInfo DataLayout PjittedFnWithContext",
    "use partitioning.PjitPartitioner.num_partitions or .model_parallel_submesh": (
        "default_mesh get_mesh get_cpu_mesh get_gpu_mesh get_coords bounds_from_last_device "
        "global_mesh_defined"
    ),
    "use partitioning.PjitPartitioner.logical_axis_rules": "override_params_axes_names AxisNames "
    "partitioning.with_sharding_constraint host_local_array_to_global_array",
    "use partitioning.PjitPartitioner with a dense model": "MoePjitPartitioner",
    "use trainer.Trainer with a dense model": "MoeTrainer",
    "use trainer.Trainer": "BaseTrainer BaseTrainerConstructor accumulate_grads_microbatched "
    "apply_grads train_with_lr trainer.eval_step trainer.merge_metrics PreemptionError "
    "ArrayMapFuture MetricValueMapFuture TimeFuture",
    "give train.actions @trainer.EarlyStoppingAction(), or an object with its method run": (
        "BaseAction ActionMode run_actions"
    ),
    "use a dense model": "moe",
    "use t5x.examples.t5.network": "calm mesh_tensorflow",
    "use t5x.examples.t5.network with T5Config.own_relative_bias = True, which scans its layers "
    "(see T5Config.remat_policy) and restores the checkpoints of scalable_t5": "scalable_t5",
    "set the arguments of network.T5Config": "layers.MultiHeadDotProductAttention layers.Embed "
    "layers.DenseGeneral layers.MlpBlock layers.RelativePositionBiases layers.LayerNorm "
    "layers.dot_product_attention layers.make_attention_mask layers.make_causal_mask "
    "layers.make_decoder_mask layers.combine_masks layers.combine_biases relative_embedding "
    "shared_embedding",
    "write the number, a multiple of 128 such as 32128": "round_vocab_size_to_multiple",
    "use what t5x itself has, or run T5X with T5X_DIR": "contrib",
    "write the configuration in gin": "fiddle fiddle_configs config_utils",
    "use a seqio task or mixture": "airio ShardedDatasetIterator prepare_train_iter",
    "set utils.DatasetConfig and train.get_dataset_fn": "utils.get_dataset get_dataset_inner "
    "get_training_eval_datasets get_zeros_batch_like_spec get_zeros_batch_like_dataset "
    "utils.import_module",
    "use infer.input_file for a text or .jsonl file, or register a seqio task with "
    "seqio.TFExampleDataSource": "create_task_from_tfexample_file",
    "leave it out: checkpoints are saved by Orbax and both kinds are read": "LegacyCheckpointer "
    "LegacyCheckpointManager checkpointer_cls checkpoint_manager_cls CheckpointManagerConstructor "
    "CheckpointerConstructor BestCheckpointManager OrbaxCheckpointManagerInterface "
    "DatasetArgs checkpoints.Checkpointer DatasetCheckpointHandler create_orbax_checkpoint_manager "
    "create_checkpoint_manager_and_restore register_ts_spec_for_serialization "
    "checkpoints.get_local_data utils.get_local_data",
    "set utils.SaveCheckpointConfig.keep_best and .metric": "SaveBestCheckpointer "
    "populate_metrics_for_steps",
    "use utils.RestoreCheckpointConfig.assignment_map": "state_transformation_fns "
    "SaveStateTransformationFn RestoreStateTransformationFn state_utils assignments",
    "use utils.RestoreCheckpointConfig": "utils.restore find_checkpoint load_t5x_checkpoint "
    "fake_param_info get_first_valid_restore_config_and_paths get_fallback_state "
    "find_first_checkpoint_step find_next_checkpoint_step checkpoint_utils checkpoints_utils "
    "TrainStateInitializer log_model_info flatten_dict_string_keys",
    "use the same model's checkpoint under gs://t5-data/pretrained_models/t5x": (
        "restore_tf_checkpoint checkpoint_importer"
    ),
    "convert the checkpoint for Hugging Face, which exports it: python -m convert": (
        "t5x.export export_lib"
    ),
    "use python -m t5x.infer with infer.input_file": "interactive_model InferenceEvaluator "
    "get_infer_fn merge_chunks_to_file FailFastThreadPoolExecutor update_measurement_series",
    "use t5x.train, t5x.eval, t5x.infer or t5x.precompile": "t5x.main utils.run_main t5x.scripts",
    "set train.use_hardware_rng": "set_hardware_rng_ops",
    "set train.verify_matching_vocabs_fn = None to skip the check": "utils.verify_matching_vocabs "
    "utils.get_vocabulary",
    "use t5x.losses.cross_entropy": "compute_weighted_cross_entropy "
    "get_loss_normalizing_factor_and_weights convert_special_loss_normalizing_factor_to_enum",
    "let loss_fn return sums, as t5x.metrics.step_sums does": "metrics.Sum metrics.Step "
    "metrics.AveragePerStep metrics.Time metrics.TimeRate metrics.StepsPerTime is_metric_obj "
    "is_time_metric create_metrics_dict set_time_metrics_duration set_step_metrics_num_steps "
    "shape_obj_to_defined_obj",
    "use decoding.beam_search or decoding.temperature_sample": "cache_map add_beam_dim "
    "flatten_beam_dim unflatten_beam_dim flat_batch_beam_expand cache_gather_beams gather_beams "
    "top_k_two_stage gather_topk_beams BeamState beam_init",
    "leave it out": "binary_search t5x.tasks t5x.testdata t5x.test_utils disable_gc_during_import "
    "utils.sync_global_devices utils.multihost_assert_equal get_gin_config_str",
    "install the package t5 for its tasks, or register the tasks that you need with seqio, as the "
    "modules of tasks/ do": "t5",
}


def ignores(function: Any, argument: str) -> bool:
    """Return whether gin may bind an argument that a function or class lacks; if so, warn once."""
    if getattr(function, "__module__", "").partition(".")[0] not in OUR_PACKAGES:
        return False
    owner = function.__qualname__.rpartition("<locals>.")[2]
    reason = IGNORED.get(owner, {}).get(argument)
    if reason is None or argument in inspect.signature(function).parameters:
        return False
    _warn(f"{owner}.{argument}", reason)
    return True


@functools.cache
def _warn(setting: str, reason: str) -> None:
    logging.warning("%s is ignored: %s.", setting, reason)


def left_out(path: str) -> str | None:
    """Return a sentence for a name of upstream's that is not here, None for any other name.

    `path` is a module, or `module.name` or `module.name.argument` as a gin file writes it.
    """
    for instead, names in LEFT_OUT.items():
        for name in names.split():
            # The package t5 is left out; t5x.examples.t5 is not.
            if f".{name}." in f".{path}." and (name != "t5" or f"{path}.".startswith("t5.")):
                return f"{path} is not part of this trainer: {instead}"
    return None
