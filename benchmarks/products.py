"""Speed of the products of a train step on a CPU, in the ways that XLA may compute them.

  JAX_PLATFORMS=cpu GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python benchmarks/products.py

Tokens [N, D] and a kernel [D, F] as in `t5x/ops/product.py`. The ways take turns; GF/s are medians.
"""

import argparse
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp

from t5x.ops.product import kernel_gradient

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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    compiled = ways()
    seconds: dict[str, list[float]] = {name: [] for name in compiled}
    for turn in range(rounds + 2):
        for name, (function, arguments) in compiled.items():
            started = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            if turn >= 2:
                seconds[name].append(time.perf_counter() - started)
    print("| | GF/s |\n|---|---|")
    for name, taken in seconds.items():
        print(f"| {name} | {FLOPS / statistics.median(taken) / 1e9:.0f} |")


if __name__ == "__main__":
    main()
