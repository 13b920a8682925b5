"""Tokens a second that the data room delivers, beside the plain way, on this machine.

    python benchmarks/data.py --files '/data/ro/train-*.jsonl' --vocabulary ro_32000.model

Both ways end in packed batches of 128 (inputs 512, targets 114), shuffled, one epoch after the
other. The plain way is `from_generator` over `load_dataset(streaming=True)`, seqio's tokenize,
the same span corruption, seqio's packing. Tokens are those of inputs and targets, padding left
out. With --step_ms the share of time is printed that a training step of that length waits; with
--stages, what the column yields when it is cut off behind each of its stages.
"""

import argparse
import functools
import time

import seqio
import tensorflow as tf

from tasks import corpora, spans, vocabularies
from tasks.sources import CorpusSource

LENGTHS = {"inputs": 512, "targets": 114}


def plain_task(files: str, vocabulary: str) -> str:
    """Registers the task as one would write it without this project."""
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
    return "plain"


def hide_one_by_one(dataset, sequence_length, output_features):
    """Span corruption a run at a time, as one writes it first."""
    sentinels = vocabularies.sentinels(output_features["targets"].vocabulary)
    length = spans.lengths(sequence_length["inputs"]).tokens

    @seqio.map_over_dataset(num_seeds=1)
    def hide(example, seed):
        tokens = example["targets"]
        (mask,) = tf.unstack(spans.noise_mask(tf.size(tokens), tf.stack(seed), spans.T5_NOISE), 1)
        inputs, targets = spans.corrupt(tokens, mask, sentinels)
        return {"inputs": inputs, "targets": targets}

    return hide(spans.split_runs(dataset, length))


def our_task(files: str, vocabulary: str) -> str:
    """Registers the task as `tasks.corpora` makes it, Romanian normalization included."""
    source = CorpusSource(files={"train": files})
    corpora.add_span_corruption("ours", source, vocabulary, cedilla=True)
    return "ours"


def measure(
    task: str, seconds: float, batch_size: int, step_s: float
) -> tuple[float, float, float]:
    """Returns tokens/s, the share of time waited, and tokens in a second of one core."""
    dataset = seqio.get_dataset(
        task,
        LENGTHS,
        seqio.EncDecFeatureConverter(pack=True),
        shuffle=True,
        seed=0,
        num_epochs=None,
        batch_size=batch_size,
        verbose=False,
    )
    iterator = iter(dataset.prefetch(2))
    for _ in range(2):
        next(iterator)
    tokens, waited, start, busy = 0, 0.0, time.monotonic(), time.process_time()
    while time.monotonic() - start < seconds:
        asked = time.monotonic()
        batch = next(iterator)
        waited += time.monotonic() - asked
        for key in ("encoder_segment_ids", "decoder_segment_ids"):
            tokens += int((batch[key].numpy() > 0).sum())
        time.sleep(step_s)
    spent = time.monotonic() - start
    return tokens / spent, waited / spent, tokens / (time.process_time() - busy)


def print_stages(task: str, seconds: float) -> None:
    """Prints documents or examples a second behind each stage of a task's column."""
    task = seqio.TaskRegistry.get(task)
    dataset = task.source.get_dataset("train", seed=0).repeat()
    _print_rate("source", dataset, seconds)
    with seqio.utils.map_seed_manager(0):
        for stage in task.preprocessors:
            if isinstance(stage, seqio.CacheDatasetPlaceholder):
                continue
            kwargs = {"sequence_length": LENGTHS, "output_features": task.output_features}
            dataset = seqio.utils.add_kwargs_to_transform(stage, **kwargs)(dataset)
            _print_rate(seqio.utils.function_name(stage), dataset, seconds)
    packed = seqio.EncDecFeatureConverter(pack=True)(dataset, LENGTHS)
    _print_rate("packing", packed, seconds)


def _print_rate(name: str, dataset: tf.data.Dataset, seconds: float) -> None:
    # Elements are counted in the runtime, so that Python's loop is not what is measured.
    counted = iter(dataset.window(200).map(_drain))
    next(counted)
    n, start, busy = 0, time.monotonic(), time.process_time()
    while time.monotonic() - start < seconds:
        next(counted)
        n += 200
    rate = n / (time.monotonic() - start)
    cost = (time.process_time() - busy) / n * 1e6
    print(f"  {name:32s} {rate:9.0f} elements/s, {cost:6.0f} us of a core each", flush=True)


def _drain(window):
    return next(iter(window.values())).reduce(tf.constant(0), lambda n, _: n + 1)


def main() -> None:
    """Reads the flags, measures both ways by turns, prints."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--files", required=True, help="JSONL with a column `text`")
    flags.add_argument("--vocabulary", required=True, help="a SentencePiece model with sentinels")
    flags.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    flags.add_argument("--rounds", type=int, default=2, help="measurements of each way")
    flags.add_argument("--batch_size", type=int, default=128)
    flags.add_argument("--step_ms", type=float, default=0.0, help="length of a simulated step")
    flags.add_argument("--stages", action="store_true", help="profile our column by stage")
    args = flags.parse_args()
    vocabulary = vocabularies.resolve(args.vocabulary)
    tasks = [make(args.files, vocabulary) for make in (plain_task, our_task)]
    best = dict.fromkeys(tasks, 0.0)
    for _ in range(args.rounds):
        for task in tasks:
            rate, waited, core = measure(task, args.seconds, args.batch_size, args.step_ms / 1000)
            best[task] = max(best[task], rate)
            print(
                f"{task:6s} {rate:10,.0f} tokens/s, {core:10,.0f} a second of one core, "
                f"{waited:6.1%} of the time waited",
                flush=True,
            )
    print(f"ours is {best['ours'] / best['plain']:.2f} times the plain way")
    if args.stages:
        print_stages("ours", args.seconds / 3)


if __name__ == "__main__":
    main()
