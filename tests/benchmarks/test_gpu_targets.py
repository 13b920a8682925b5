"""GPUs are known by name, and a step compiles for one that is not there."""

import functools

import jax
import jax.numpy as jnp
import pytest

from benchmarks import gpu_targets, step
from benchmarks.synthetic_step import SyntheticRequest, train_step
from t5x import optimizers, partitioning, schedules
from t5x.examples.encoder import network
from t5x.examples.encoder.model import MaskedLanguageModel
from t5x.train_state import state_specs
from t5x.trainer import Trainer


def test_a_target_is_a_slice_or_a_gpu_which_counts_no_cycles():
    check = lambda *flags: step.check(step.PARSER.parse_args(["--compile_for", *flags]))
    check("v4-8", "--top", "9")
    check("h100")
    for refused in (("h10",), ("h100", "--top", "9")):
        with pytest.raises(SystemExit, match="2"):
            check(*refused)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head_dim"), [("h100", 64), ("h100", 128), ("a100", 64), ("l4", 64), ("l4", 128)]
)
def test_a_step_with_kernels_compiles_without_a_gpu(name, head_dim):
    pytest.importorskip("jax_cuda12_plugin")
    sizes = {"emb_dim": 128, "num_heads": 2, "head_dim": head_dim, "mlp_dim": 256}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    network = {"vocab_size": 512, "dtype": "bfloat16", **sizes, **layers}
    request = SyntheticRequest("", network=network, batch=4)
    compiled = gpu_targets.compile_step(name, functools.partial(train_step, request))
    assert "__gpu$xla.gpu.triton" in compiled.as_text()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "modernbert"])
def test_an_encoders_step_compiles_with_kernels(model):
    pytest.importorskip("jax_cuda12_plugin")
    config, module = {
        "bert": (network.BertConfig, network.Bert),
        "modernbert": (network.ModernBertConfig, network.ModernBert),
    }[model]
    sizes = config(
        vocab_size=512, dtype=jnp.bfloat16, emb_dim=128, num_heads=2, num_layers=4, mlp_dim=256
    )

    def train_step(devices):
        masked = MaskedLanguageModel(module(sizes), None, None, optimizers.adamw())
        partitioner = partitioning.PjitPartitioner(1, devices=devices)
        rate = schedules.create_learning_rate_scheduler("constant", 1e-3)
        specs = state_specs(masked, partitioner)
        trainer = Trainer(
            masked, None, partitioner, specs, jax.random.key(0), learning_rate_fn=rate
        )
        names = ("input_tokens", "target_tokens", "segment_ids", "positions", "loss_weights")
        shape = jax.ShapeDtypeStruct((4, 256), jnp.int32)
        return trainer, {f"encoder_{name}": shape for name in names}

    compiled = gpu_targets.compile_step("h100", train_step)
    assert "__gpu$xla.gpu.triton" in compiled.as_text()
