"""Tokens per second of the input pipeline, next to plain `datasets` and seqio, on this machine.

    python benchmarks/data.py --files '/data/ro/train-*.jsonl' --vocabulary ro_32000.model

Both ways produce packed batches of 128 (inputs 512, targets 114), shuffled, for many epochs. Each
has a process of its own, so that what one reads ahead does not take the other's time. The
plain way is `from_generator` over `load_dataset(streaming=True)`, seqio's tokenize, the same span
corruption, and seqio's packing. Ours is the training stream of a single host. Tokens are those of
inputs and targets without padding.
"""

import argparse
import functools
import multiprocessing
import multiprocessing.connection
import pathlib
import resource
import statistics
import sys
import time
from collections.abc import Iterator

import seqio
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from t5x.input_pipeline.config import DatasetConfig  # noqa: E402
from t5x.input_pipeline.stream import TrainStream  # noqa: E402
from tasks import corpora, vocabularies  # noqa: E402
from tasks.corpus.source import CorpusSource  # noqa: E402
from tasks.objectives import span_corruption  # noqa: E402
from tasks.text.token_chunks import split_tokens  # noqa: E402

LENGTHS = {"inputs": 512, "targets": 114}


def plain_task(files: str, vocabulary: str) -> None:
    """Register the task as one would write it without this project."""
    import datasets

    rows = datasets.load_dataset("json", data_files=files, streaming=True, split="train")

    def dataset_fn(split, shuffle_files, seed=None):
        del split, shuffle_files, seed
        text = lambda: ({"targets": row["text"]} for row in rows)
        return tf.data.Dataset.from_generator(
            text, output_signature={"targets": tf.TensorSpec([], tf.string)}
        )

    feature = seqio.Feature(seqio.SentencePieceVocabulary(vocabulary), dtype=tf.int32)
    seqio.TaskRegistry.add(
        "plain",
        seqio.FunctionDataSource(dataset_fn, ["train"]),
        preprocessors=[
            functools.partial(seqio.preprocessors.tokenize, copy_pretokenized=False),
            hide_one_by_one,
            seqio.preprocessors.append_eos,
        ],
        output_features={"inputs": feature, "targets": feature},
    )


def hide_one_by_one(dataset, sequence_length, output_features):
    """Corrupt spans one run at a time, in plain Python."""
    sentinels = vocabularies.sentinels(output_features["targets"].vocabulary)
    length = span_corruption.T5_NOISE.lengths(sequence_length["inputs"]).tokens

    @seqio.map_over_dataset(num_seeds=1)
    def hide(example, seed):
        tokens = example["targets"]
        mask = span_corruption.noise_mask(tf.size(tokens), tf.stack(seed), span_corruption.T5_NOISE)
        inputs, targets = span_corruption.corrupt(tokens[tf.newaxis], mask, sentinels)
        return {"inputs": inputs[0], "targets": targets[0]}

    return hide(split_tokens(dataset, length))


def our_task(files: str, vocabulary: str) -> None:
    """Register the task as `tasks.corpora` makes it, with Romanian normalization."""
    source = CorpusSource(files={"train": files}, held_out={})
    corpora.add("ours", source, vocabulary, cedilla=True)


def plain_batches(batch_size: int) -> Iterator:
    """Return batches as seqio makes them."""
    dataset = seqio.get_dataset(
        "plain",
        LENGTHS,
        seqio.EncDecFeatureConverter(pack=True),
        shuffle=True,
        seed=0,
        num_epochs=None,
        batch_size=batch_size,
        verbose=False,
    )
    return dataset.prefetch(2).as_numpy_iterator()


def our_batches(batch_size: int) -> Iterator:
    """Return batches as the trainer reads them."""
    cfg = DatasetConfig("ours", LENGTHS, "train", batch_size, shuffle=True, seed=0, pack=True)
    converter = seqio.EncDecFeatureConverter
    return TrainStream(cfg, converter, (0, batch_size), seed=0)


def measure(batches: Iterator, seconds: float) -> tuple[float, float]:
    """Return tokens/s, and tokens in a second of one core."""
    for _ in range(16):  # what was made ahead while the other way was measured is not counted
        next(batches)
    tokens, start, busy = 0, time.monotonic(), time.process_time()
    while time.monotonic() - start < seconds:
        batch = next(batches)
        for key in ("encoder_segment_ids", "decoder_segment_ids"):
            tokens += int((batch[key] > 0).sum())
    return tokens / (time.monotonic() - start), tokens / (time.process_time() - busy)


def serve(
    way: str, args: argparse.Namespace, parent: multiprocessing.connection.Connection
) -> None:
    """Measure a way whenever `parent` asks for it, until it sends False."""
    vocabulary = vocabularies.resolve(args.vocabulary)
    batches: Iterator
    if way == "plain":
        plain_task(args.files, vocabulary)
        batches = plain_batches(args.batch_size)
    else:
        our_task(args.files, vocabulary)
        batches = our_batches(args.batch_size)
    while parent.recv():
        rates = measure(batches, args.seconds)
        parent.send((*rates, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10))


def main() -> None:
    """Read the flags, measure both ways in turn, print."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--files", required=True, help="JSONL with a column `text`")
    flags.add_argument("--vocabulary", required=True, help="a SentencePiece model with sentinels")
    flags.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    flags.add_argument("--rounds", type=int, default=2, help="measurements of each way")
    flags.add_argument("--batch_size", type=int, default=128)
    args = flags.parse_args()
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, {}
    for way in ("plain", "ours"):
        pipes[way], end = context.Pipe()
        processes[way] = context.Process(target=serve, args=(way, args, end), daemon=True)
        processes[way].start()
        end.close()  # otherwise the end of a process that fails is not noticed
    rates, cores = ({way: [] for way in pipes} for _ in range(2))
    for _ in range(args.rounds):
        for way, pipe in pipes.items():
            pipe.send(True)
            try:
                rate, core, memory = pipe.recv()
            except (EOFError, ConnectionError):
                raise SystemExit(f"the process of the {way} way has failed") from None
            rates[way].append(rate)
            cores[way].append(core)
            print(
                f"{way:6s} {rate:10,.0f} tokens/s, {core:10,.0f} a second of one core, "
                f"{memory} MiB at most so far",
                flush=True,
            )
    ratio = lambda statistic, rates: statistic(rates["ours"]) / statistic(rates["plain"])
    print(
        f"ours is {ratio(max, rates):.2f} times the plain way, best round against best round, "
        f"{ratio(statistics.median, rates):.2f} median against median, "
        f"{ratio(statistics.median, cores):.2f} of a second of one core",
        flush=True,
    )
    for way, pipe in pipes.items():
        pipe.send(False)
        processes[way].join()


if __name__ == "__main__":
    main()
