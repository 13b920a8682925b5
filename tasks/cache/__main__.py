r"""Make the offline cache of a task, through Apache Beam.

    python -m tasks.cache --task ro_mini_span_corruption --out runs/caches
    python -m tasks.cache --task ro_mini_span_corruption --out gs://bucket/caches \
        --lengths inputs=512,targets=114 --epochs 2 \
        --runner DataflowRunner --project mine --region europe-west4 --temp_location gs://bucket/tmp

The first caches the documents' tokens, which training corrupts differently in each epoch (the
task's own name, USE_CACHED_TASKS = True). The second caches finished examples, corrupted twice (the
task's name with the suffix _i512_t114, registered by `cached.add_pregenerated`). Both are read if
tasks.cache.folders.paths names the folder.

Without --runner, all cores of this machine work, through Beam's direct runner. Unknown flags are
passed to Beam. After an interruption the same command resumes.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import json
import logging as python_logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from common import arguments
from common.errors import UserError, guarded, require
from common.proxy import without_proxy
from tasks.cache import build
from tasks.cache.plan import CacheJob, parts_of, shards_of

# Beam's direct runner of the Python SDK. For "DirectRunner", Beam would first download another.
LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
LOCAL_OPTIONS = ("--direct_running_mode=multi_processing", "--direct_num_workers=0")


def make(job: CacheJob, beam_options: Sequence[str] = (), runner: str = "") -> dict[str, dict]:
    """Make the cache, or the rest of it; return its statistics by split.

    Raises:
      UserError: the job is impossible, or the folder holds another cache.
    """
    build.check_pipelines(job)
    if not build.start(job):
        print(f"{job.folder} is already complete")
        return {split: build.read_json(f"{job.folder}/stats.{split}.json") for split in job.splits}
    run_beam(job, beam_options, runner)
    return build.finish(job)


def run_beam(job: CacheJob, beam_options: Sequence[str], runner: str) -> None:
    """Write all parts in parallel, and then all shards."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    is_local = runner in ("", "DirectRunner")
    os.environ.update(without_proxy("localhost", os.environ))  # where Beam's workers meet
    options = PipelineOptions([*(LOCAL_OPTIONS if is_local else ()), *beam_options])
    with beam.Pipeline(LOCAL_RUNNER if is_local else runner, options) as pipeline:
        previous: list = []
        for name, items, write in (
            ("write parts", parts_of(job), build.write_part),
            ("write shards", shards_of(job), build.write_shard),
        ):
            count = (
                pipeline
                | f"{name}: list" >> beam.Create(items)
                | f"{name}: spread" >> beam.Reshuffle()
                | name >> beam.Map(_call, write, job, *previous)
                | f"{name}: end" >> beam.combiners.Count.Globally()
            )
            previous = [beam.pvalue.AsSingleton(count)]


def _call(item: Any, write: Callable, job: CacheJob, *_) -> None:
    """Write an item after Beam has computed the last arguments, the end of the stage before."""
    write(job, item)


def check_beam_options(options: Sequence[str], runner: str) -> None:
    """Raise UserError if Beam has no such flag or runner, or an option is no flag at all."""
    require("apache_beam")
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners import create_runner

    before = ""
    for option in options:
        if not option.startswith("-") and (not before.startswith("--") or "=" in before):
            raise UserError(repr(option), why="is not a flag: flags begin with --, such as --task")
        before = option
    parsed = PipelineOptions(list(options))
    try:
        create_runner(runner or LOCAL_RUNNER)
    except ValueError as error:
        raise UserError("--runner", runner, f"which Beam does not know: {error}") from error
    flags = parsed.get_all_options(retain_unknown_options=True)
    if unknown := sorted(flags.keys() - parsed.get_all_options().keys()):
        why = "is a flag neither of tasks.cache nor of Beam"
        raise UserError(f"--{unknown[0]}", why=why, to_set="leave it out")


def parse_flags(argv: Sequence[str]) -> tuple[CacheJob, list[str], str]:
    """Return the job, the flags left for Beam, and the runner.

    Raises:
      UserError: --lengths is not of the form inputs=512,targets=114.
    """
    parser = arguments.parser("python -m tasks.cache", __doc__)
    add, text, number = parser.add_argument, arguments.text, arguments.integer(0)
    add("--task", type=text, required=True, help="a registered task's name")
    add("--out", type=text, required=True, help="the folder of caches, local or gs://")
    add("--lengths", default="", help="inputs=512,targets=114: cache finished examples")
    add("--epochs", type=arguments.integer(1), default=1, help="how often the corpus is corrupted")
    add("--splits", type=text, default="train,validation", help="default train,validation")
    add("--seed", type=number, default=0, help="of the order and the noise")
    add("--shards", type=number, default=0, help="files of an epoch; default by size")
    about = "megabytes of text to read at a time; default by size"
    add("--part_mb", type=number, default=0, help=about)
    about = "the module that registers the task, such as tasks.romanian"
    add("--module", action="append", dest="modules", help=about)
    about = "a setting of gin, 'name = value'"
    add("--gin_bindings", action="append", default=[], dest="bindings", help=about)
    add("--runner", default="", help="Beam's runner; default all cores of this machine")
    args, others = parser.parse_known_args(argv)
    fields = vars(args)
    runner = fields.pop("runner")
    fields["lengths"] = tuple(arguments.lengths(args.lengths).items())
    fields["splits"] = tuple(args.splits.split(","))
    fields["part_bytes"] = fields.pop("part_mb") << 20
    fields["modules"] = tuple(args.modules or CacheJob.modules)
    fields["bindings"] = tuple(args.bindings)
    return CacheJob(**fields), others, runner


@guarded
def main(argv: Sequence[str]) -> None:
    """Make the cache and print its statistics."""
    python_logging.getLogger("apache_beam").setLevel(python_logging.ERROR)
    job, others, runner = parse_flags(argv)
    arguments.check_output_folder("--out", job.out, buckets_too=True)
    check_beam_options(others, runner)
    stats = make(job, others, runner)
    for split, counts in stats.items():
        print(f"{job.folder}: {split}: {json.dumps(counts)}")


if __name__ == "__main__":
    main(sys.argv[1:])
