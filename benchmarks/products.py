"""Speed of products, sums and weights of a train step on a CPU, in the ways that XLA computes them.

  JAX_PLATFORMS=cpu python benchmarks/products.py

Tokens [N, D] and a kernel [D, F] as in `t5x/ops/product.py`; sums as in `t5x/ops/sums.py`; heads
and weights of `t5x/ops/blocked_attention.py`. The ways take turns; GF/s and ms are medians.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp

from t5x.multihost.xla_options import set_on_cpu
from t5x.ops.blocked_attention import rounded
from t5x.ops.product import copied, kernel_gradient
from t5x.ops.sums import column_sums, sum_rows

TOKENS, IN, OUT = 4096, 512, 1024
FLOPS = 2 * TOKENS * IN * OUT

Way = tuple[Callable[..., jax.Array], tuple[jax.Array, ...]]


def ways() -> Mapping[str, Way]:
    """Return the compiled products, each with its arguments, by what they compute."""
    found = {}
    for dtype in (jnp.float32, jnp.bfloat16):
        x_ND, kernel_DF, d_out_NF = (
            jax.random.normal(jax.random.key(seed), shape, dtype)
            for seed, shape in enumerate(((TOKENS, IN), (IN, OUT), (TOKENS, OUT)))
        )
        name = jnp.dtype(dtype).name
        for result in dict.fromkeys((dtype, jnp.float32)):
            product = lambda a, b, result=result: jnp.dot(a, b, preferred_element_type=result)
            label = f"{name} product, {jnp.dtype(result).name} result"
            found[label] = jax.jit(product), (x_ND, kernel_DF)
        direct = lambda x, d: jnp.einsum("ND,NF->DF", x, d, preferred_element_type=jnp.float32)
        found[f"{name} gradient of a kernel"] = jax.jit(direct), (x_ND, d_out_NF)
        copied = lambda x, d: kernel_gradient(x, d, jnp.float32)
        found[f"{name} gradient from a transposed copy"] = jax.jit(copied), (x_ND, d_out_NF)
    return found


def parts() -> Mapping[str, Way]:
    """Return compiled sums, and parts of attention for 2 sequences and 4 heads, as `ways` does."""
    normal = lambda *shape: jax.random.normal(jax.random.key(0), shape)
    wide, rows, logits = normal(128, 32128), normal(2, 1 << 20), normal(2, 4, 512, 512)
    heads = normal(2, 512, 4, 32).astype(jnp.bfloat16)
    by_head, by_column = (0, 2, 1, 3), (0, 2, 3, 1)
    product = lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.float32)
    direct = lambda q, k: product(q.transpose(by_head), k.transpose(by_column))
    natural = lambda q, k: product(copied(q.transpose(by_head)), copied(k.transpose(by_column)))
    found = {
        "sum of 128 rows of 32128": (lambda x: x.sum(0), (wide,)),
        "the same as a product with ones": (column_sums, (wide,)),
        "sum of 2 rows of 1048576": (lambda x: x.sum(0), (rows,)),
        "the same, added one by one": (sum_rows, (rows,)),
        "exponentials, 2 M": (jnp.exp, (logits,)),
        "the same in bfloat16": (lambda x: jnp.exp(x).astype(jnp.bfloat16), (logits,)),
        "the same, rounded by their bits": (lambda x: rounded(jnp.exp(x), jnp.bfloat16), (logits,)),
        "queries and keys in bfloat16": (direct, (heads, heads)),
        "the same, copied first": (natural, (heads, heads)),
    }
    return {name: (jax.jit(way), arguments) for name, (way, arguments) in found.items()}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    set_on_cpu(os.environ, IN)  # as a training run does
    products, others = ways(), parts()
    compiled = {**products, **others}
    seconds: dict[str, list[float]] = {name: [] for name in compiled}
    for turn in range(rounds + 2):
        for name, (function, arguments) in compiled.items():
            started = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            if turn >= 2:
                seconds[name].append(time.perf_counter() - started)
    print("| | GF/s |\n|---|---|")
    for name in products:
        print(f"| {name} | {FLOPS / statistics.median(seconds[name]) / 1e9:.0f} |")
    print("\n| | ms |\n|---|---|")
    for name in others:
        print(f"| {name} | {1e3 * statistics.median(seconds[name]):.2f} |")


if __name__ == "__main__":
    main()
