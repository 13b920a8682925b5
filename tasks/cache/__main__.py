"""Makes the offline cache of a task, through Apache Beam.

    python -m tasks.cache --task ro_mini_span_corruption --out caches
    python -m tasks.cache --task ro_mini_span_corruption --out gs://bucket/caches \
        --lengths inputs=512,targets=114 --epochs 2 \
        --runner DataflowRunner --project mine --region europe-west4 --temp_location gs://bucket/tmp

The first caches the documents' tokens, which training hides anew in each epoch (the task's own
name, USE_CACHED_TASKS = True). The second caches finished examples, hidden twice at different
places (the task's name with _i512_t114 behind it, registered by `caches.add_pregenerated`). Either
is read where tasks.caches.folders.paths names the folder.

--unique leaves out documents that repeat another of the split, letter by letter.
Without --runner all cores of this machine work, as Beam's direct runner has them. Whatever this
page does not know is handed to Beam. Killed, the same command goes on where it was.
"""

import argparse
import dataclasses
import json
import logging as python_logging
import sys
from collections.abc import Callable, Sequence

import tensorflow as tf

from tasks.cache import build, deduplicate
from tasks.cache.plan import Job, parts_of, shards_of, task_of

# Beam's direct runner of the Python SDK. Asked for "DirectRunner", Beam would first fetch another
# from the network.
LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
LOCAL_OPTIONS = ("--direct_running_mode=multi_processing", "--direct_num_workers=0")


def make(job: Job, beam_options: Sequence[str] = (), runner: str = "") -> dict[str, dict]:
    """Makes the cache, or the rest of it, and returns its statistics by split.

    Args:
      job: what to make.
      beam_options: flags for Beam; without any, all cores of this machine.
      runner: Beam's runner, "" for this machine.

    Raises:
      ValueError: the job cannot be done, or the folder holds the cache of another one.
    """
    build.check(job)
    if not _begin(job):
        print(f"{job.folder} is complete already")
        return {split: _stats(job, split) for split in job.splits}
    run(job, beam_options, runner)
    return build.finish(job)


def stages(job: Job) -> list[tuple[str, list, Callable]]:
    """Returns what is to be done: name, items, function of an item; each stage after the last."""
    parts = parts_of(job)
    hashed = list(dict.fromkeys((part.split, part.index) for part in parts if job.unique))
    buckets = [(split, n) for split in job.splits for n in range(deduplicate.BUCKETS) if job.unique]
    return [
        ("hash documents", hashed, lambda item: deduplicate.note(job, *item)),
        ("compare hashes", buckets, lambda item: deduplicate.compare(job, *item)),
        ("write parts", parts, lambda part: build.write_part(job, part)),
        ("write shards", shards_of(job), lambda shard: build.write_shard(job, shard)),
    ]


def run(job: Job, beam_options: Sequence[str], runner: str) -> None:
    """Does all stages, each wherever Beam likes, none before the last is complete."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    local = runner in ("", "DirectRunner")
    options = PipelineOptions([*(LOCAL_OPTIONS if local else ()), *beam_options])
    with beam.Pipeline(LOCAL_RUNNER if local else runner, options) as pipeline:
        before = []
        for name, items, function in stages(job):
            if items:
                done = (
                    pipeline
                    | f"{name}: list" >> beam.Create(items)
                    | f"{name}: spread" >> beam.Reshuffle()
                    | name >> beam.Map(_call, function, *before)
                    | f"{name}: end" >> beam.combiners.Count.Globally()
                )
                before = [beam.pvalue.AsSingleton(done)]


def _call(item, function, *before) -> None:
    del before  # only waited for
    function(item)


def _begin(job: Job) -> bool:
    """Notes what is being made; False if it is there already.

    Raises:
      ValueError: the folder holds something else.
    """
    path = f"{job.folder}/job.json"
    wanted = json.loads(json.dumps({**dataclasses.asdict(job), "corpus": _corpus(job)}))
    del wanted["out"]
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as file:
            found = json.loads(file.read())
        other = [name for name in wanted if found.get(name) != wanted[name]]
        if other:
            raise ValueError(
                f"{job.folder} holds a cache made with another {', '.join(other)} "
                f"({found.get(other[0])!r}, not {wanted[other[0]]!r}): give another --out, or "
                "remove that folder"
            )
    else:
        tf.io.gfile.makedirs(job.folder)
        with tf.io.gfile.GFile(path, "w") as file:
            file.write(json.dumps(wanted, indent=2))
    return not tf.io.gfile.exists(f"{job.folder}/COMPLETED")


def _corpus(job: Job) -> dict[str, list[str]]:
    source = task_of(job).source
    return {split: list(source.list_shards(split)) for split in job.splits}


def _stats(job: Job, split: str) -> dict:
    with tf.io.gfile.GFile(f"{job.folder}/stats.{split}.json") as file:
        return json.loads(file.read())


def job_of(argv: Sequence[str]) -> tuple[Job, list[str], str]:
    """Returns the job that the flags ask for, the flags left for Beam, and the runner.

    Raises:
      ValueError: --lengths is not of the form inputs=512,targets=114.
    """
    flags = argparse.ArgumentParser(
        prog="python -m tasks.cache", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    flags.add_argument("--task", required=True, help="a registered task's name")
    flags.add_argument("--out", required=True, help="the folder of caches, local or gs://")
    flags.add_argument("--lengths", default="", help="inputs=512,targets=114: finished examples")
    flags.add_argument("--epochs", type=int, default=1, help="times the corpus is hidden")
    flags.add_argument("--splits", default="train,validation")
    flags.add_argument("--seed", type=int, default=0, help="of order and noise")
    flags.add_argument("--shards", type=int, default=0, help="files an epoch; default by size")
    flags.add_argument("--part_mb", type=int, default=0, help="text a step; default by size")
    flags.add_argument("--unique", action="store_true", help="leave out repeated documents")
    flags.add_argument("--module", action="append", help="imported first (tasks.romanian)")
    flags.add_argument("--gin_bindings", action="append", default=[], help="'name = value'")
    flags.add_argument("--runner", default="", help="Beam's; without it this machine's cores")
    args, others = flags.parse_known_args(argv)
    job = Job(
        task=args.task,
        out=args.out,
        lengths=_lengths(args.lengths),
        epochs=args.epochs,
        splits=tuple(args.splits.split(",")),
        seed=args.seed,
        shards=args.shards,
        part_bytes=args.part_mb << 20,
        unique=args.unique,
        modules=tuple(args.module or ("tasks.romanian",)),
        bindings=tuple(args.gin_bindings),
    )
    return job, others, args.runner


def _lengths(text: str) -> tuple[tuple[str, int], ...]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if not all(n.isdigit() for _, _, n in pairs):
        raise ValueError(f"--lengths is {text!r}, but must look like inputs=512,targets=114")
    return tuple((feature, int(n)) for feature, _, n in pairs)


def main(argv: Sequence[str]) -> None:
    """Makes the cache and prints what it holds."""
    python_logging.getLogger("apache_beam").setLevel(python_logging.WARNING)
    try:
        job, others, runner = job_of(argv)
        stats = make(job, others, runner)
    except ValueError as error:
        sys.exit(f"python -m tasks.cache: {error}")
    for split, counts in stats.items():
        print(f"{job.folder}: {split}: {json.dumps(counts)}")


if __name__ == "__main__":
    main(sys.argv[1:])
