"""Tokens per second of greedy decoding, next to transformers' `generate`, same model and machine.

  .venv/bin/python benchmarks/decode.py                                 # T5 1.1 small, all cores
  .venv/bin/python benchmarks/decode.py --size t5_1_1/base --batch 8 --threads 1

Transformers makes a model with random weights, `convert` turns it into a checkpoint, and both
decode the same inputs in turn, in one process with the same number of threads. There are two jobs:

  steps  all outputs have the same length: measures the cost of a step
  file   outputs end at different lengths, uniform from a quarter of the longest: a file of inputs
         as t5x.infer takes it

The length of an output is a pseudo-random function of its input's length; it ends exactly there.
Transformers takes the inputs sorted by length, pads a batch to its longest and decodes to the
longest output. Rates count generated tokens, medians over the rounds; compilation and a first round
are excluded. Torch's threads wait for each other by spinning: on a busy machine set
OMP_WAIT_POLICY=passive and GOMP_SPINCOUNT=0, or compare core-seconds with --threads 1.
"""

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
PARSER.add_argument("--size", default="t5_1_1/small", help="a gin file below t5x/examples/t5")
PARSER.add_argument("--vocabulary", type=int, default=32128)
PARSER.add_argument("--examples", type=int, default=64)
PARSER.add_argument("--batch", type=int, default=16)
PARSER.add_argument("--inputs", type=int, nargs=2, default=(16, 128), help="shortest, longest")
PARSER.add_argument("--targets", type=int, default=64)
PARSER.add_argument("--job", choices=("steps", "file"), help="this one alone")
PARSER.add_argument("--rounds", type=int, default=5)
PARSER.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
PARSER.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))


def random_model(fields: dict, folder: Path):
    """Return a published model with random weights, and it as sizes and a tree of parameters."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    from convert import from_hf
    from convert.sizes import T5Sizes
    from convert.t5x_params import parameters
    from t5x.checkpointing.reader import open_checkpoint

    sizes = dataclasses.replace(T5Sizes.from_fields(fields), dropout_rate=0.0)
    torch.manual_seed(0)
    config = AutoConfig.for_model(**sizes.config())
    theirs = AutoModelForSeq2SeqLM.from_config(config).eval()
    theirs.save_pretrained(folder / "hf")
    path = from_hf.write_checkpoint(folder / "hf", folder / "run", verify_logits=False)
    arrays = parameters(open_checkpoint(path))
    return theirs, sizes, {name: array.read() for name, array in arrays.items()}


def inputs_of(args: argparse.Namespace) -> list:
    """Return int32 ids of different lengths, each with an end of sequence."""
    import numpy as np

    random = np.random.default_rng(0)
    lengths = random.integers(args.inputs[0], args.inputs[1] + 1, args.examples)
    row = lambda n: np.append(random.integers(3, args.vocabulary, n - 1), 1).astype(np.int32)
    return [row(n) for n in lengths]


def output_lengths(inputs, shortest: int, longest: int):
    """Return how many tokens the outputs have, from those of their inputs."""
    return shortest + inputs * 37 % (longest - shortest + 1)


def ours_of(args: argparse.Namespace, sizes, arrays, rows, shortest: int):
    """Return a function that decodes `rows` by `t5x.infer`'s predictor: ids [T] of each."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from flax.traverse_util import unflatten_dict

    from t5x import decoding, models
    from t5x.checkpointing.layer_stacking import stack_layers
    from t5x.examples.t5 import incremental_decoder, network
    from t5x.inference.predictor import Predictor
    from t5x.partitioning import PjitPartitioner

    names = {field.name for field in dataclasses.fields(network.T5Config)}
    fields = {k: v for k, v in dataclasses.asdict(sizes).items() if k in names}
    config = network.T5Config(**fields | {"dtype": args.dtype})

    class Vocabulary:
        eos_id = 1

    class Ending(incremental_decoder.IncrementalDecoder):
        def __call__(self, ids, cache):
            logits, cache = super().__call__(ids, cache)
            lengths = output_lengths(self.cross_mask_B11I.sum((1, 2, 3)), shortest, args.targets)
            last = (cache["position"] >= lengths)[:, None]
            is_eos = jnp.arange(logits.shape[-1]) == Vocabulary.eos_id
            return jnp.where(is_eos == last, logits, decoding.NEG_INF), cache

    models.IncrementalDecoder = Ending
    model = models.EncoderDecoderModel(
        network.Transformer(config), None, Vocabulary(), None, decode_fn=decoding.temperature_sample
    )
    partitioner = PjitPartitioner()
    params = stack_layers(unflatten_dict(arrays, sep="/"))
    params = jax.device_put(params, partitioner.replicated)
    examples = []
    for row in rows:
        padded = np.zeros(args.inputs[1], np.int32)
        padded[: len(row)] = row
        targets = np.zeros(args.targets, np.int32)
        examples.append({"encoder_input_tokens": padded, "decoder_input_tokens": targets})
    predictor = Predictor(model, partitioner, args.batch, length_buckets=4)
    return lambda: predictor("predict", params, examples)


def theirs_of(args: argparse.Namespace, model, rows, shortest: int):
    """Return a function that decodes `rows` by transformers' `generate`: ids [T] of each."""
    import numpy as np
    import torch
    from transformers import LogitsProcessorList

    def decode(batch):
        longest = max(map(len, batch))
        ids = torch.tensor(np.stack([np.pad(row, (0, longest - len(row))) for row in batch])).long()
        lengths = output_lengths((ids > 0).sum(-1), shortest, args.targets)

        def ends(ids, scores):
            last = (ids.shape[1] >= lengths)[:, None]
            is_eos = torch.arange(scores.shape[-1]) == 1
            return scores.masked_fill(is_eos != last, -1e7)

        with torch.inference_mode():
            out = model.generate(
                input_ids=ids,
                attention_mask=(ids > 0).long(),
                do_sample=False,
                num_beams=1,
                max_new_tokens=args.targets,
                logits_processor=LogitsProcessorList([ends]),
            )
        return list(out[:, 1:].numpy())

    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    groups = [order[start : start + args.batch] for start in range(0, len(rows), args.batch)]

    def run():
        outputs = {
            i: ids for g in groups for i, ids in zip(g, decode([rows[i] for i in g]), strict=True)
        }
        return [outputs[i] for i in range(len(rows))]

    return run


def timed(run) -> tuple[list, float, float]:
    """Run a function; return its result, its seconds, and the core-seconds."""
    started, worked = time.perf_counter(), time.process_time()
    return run(), time.perf_counter() - started, time.process_time() - worked


def main():
    args = PARSER.parse_args()
    # Before any library starts its threads: jax takes a thread a core that it may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import torch

    from common.gin_reader import Bindings

    path = ROOT / "t5x" / "examples" / "t5" / f"{args.size}.gin"
    fields = Bindings.follow(path, [ROOT]).of("T5Config") | {"vocab_size": args.vocabulary}
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        theirs, sizes, arrays = random_model(fields, Path(folder))
    theirs = theirs.to(getattr(torch, args.dtype))
    rows = inputs_of(args)
    jobs = {"steps": args.targets, "file": args.targets // 4}
    for job in [args.job] if args.job else jobs:
        shortest = jobs[job]
        ways = {
            "transformers": theirs_of(args, theirs, rows, shortest),
            "ours": ours_of(args, sizes, arrays, rows, shortest),
        }
        print(f"{job}: {args.examples} outputs of {shortest} to {args.targets} tokens")
        lengths = [output_lengths(len(row), shortest, args.targets) for row in rows]
        compare(ways, lengths, args.rounds)


def compare(ways: dict, lengths: list[int], rounds: int):
    """Print the rates of both ways for outputs of these lengths, and their ratio."""
    first = {name: timed(run) for name, run in ways.items()}
    both = zip(first["transformers"][0], first["ours"][0], lengths, strict=True)
    same = sum((a[:n] == b[:n]).sum() for a, b, n in both) / sum(lengths)
    seconds = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            seconds[name].append(timed(run)[1:])
    rates = {}
    for name, times in seconds.items():
        columns = zip(*times, strict=True)
        wall, worked = (sum(lengths) / statistics.median(column) for column in columns)
        rates[name] = wall, worked
        spread = ", ".join(f"{sum(lengths) / s:,.0f}" for s, _ in times)
        print(
            f"{name:13} {wall:9,.0f} tokens/s  ({spread})  {worked:,.0f} a core-second  "
            f"first round {first[name][1]:.1f} s"
        )
    wall, worked = (a / b for a, b in zip(rates["ours"], rates["transformers"], strict=True))
    print(
        f"ours / transformers {wall:.2f} by the clock, {worked:.2f} by core-seconds; "
        f"{same:.1%} of the tokens are the same"
    )


if __name__ == "__main__":
    main()
