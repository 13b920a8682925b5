r"""Every check that can be made of a run before a TPU is paid for, on any machine.

python -m preflight --gin_file gin/ro_t5x_base.gin --slice v4-8
python -m preflight --gin_file gin/ro_t5x_base.gin --slice v4-8 --offline --gin.BATCH_SIZE=256
python -m preflight --gin_file gin/ro_t5x_base.gin --compare v4-8,v4-32,v5e-16,v6e-8
python -m preflight --gin_file gin/ro_t5x_base.gin --slice v4-8 --sweep

Status 0 where nothing fails, 1 where something does, 2 where the command itself is wrong. What
could not be looked at reads "not checked" and fails nothing.
"""

if __name__ == "__main__":  # before any library is imported
    from t5x.cli import log_capture

    log_capture.start()

import os

from preflight.aot import tpu_slices

os.environ.update(tpu_slices.ENVIRONMENT)  # before jax and tensorflow are loaded

import argparse
import json
import logging
import sys
from pathlib import Path

from absl import logging as absl_logging

from preflight import checklist, results
from preflight.aot import recipe
from preflight.run_context import Subject
from preflight.search import compare_slices, sweep
from t5x.gin_utils import rewrite_gin_args

DEFAULT = "gin/ro_t5x_base.gin"


def arguments(argv: list[str]) -> argparse.Namespace:
    """Flags; `--gin.NAME=value` as in every door."""
    parser = argparse.ArgumentParser(
        prog="python -m preflight",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--gin_file", action="append", help=f"gin files, in order; default {DEFAULT}")
    add("--gin_bindings", action="append", default=[], help="'NAME = value', after the files")
    add("--gin_search_paths", default=".", help="folders that gin files are looked for in")
    add("--slice", help="what is to be rented: v4-8, v5e-16, …")
    add("--compare", help="slices side by side, by commas")
    add("--sweep", action="store_true", help="try batch × remat × partitions on the slice")
    add("--offline", action="store_true", help="ask for nothing over the network")
    add("--json", help="file for the same as numbers")
    add("--cache", help="folder for JAX's compilation cache; default runs/.compiled/<slice>")
    found = parser.parse_args(rewrite_gin_args(argv))
    if bool(found.slice) == bool(found.compare):
        parser.error("give either --slice NAME or --compare NAME,NAME,…")
    if found.sweep and not found.slice:
        parser.error("--sweep needs --slice NAME")
    return found


def main(argv: list[str] | None = None) -> int:
    """Runs what is asked for, prints it, and returns the status."""
    absl_logging.set_verbosity(absl_logging.ERROR)
    for name in ("jax", "orbax", "huggingface_hub"):  # what they warn of is said in a row
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        flags = arguments(sys.argv[1:] if argv is None else argv)
        tpus = [tpu_slices.find(n) for n in (flags.compare or flags.slice).split(",")]
        asked = recipe.Recipe(
            tuple(flags.gin_file or [DEFAULT]),
            tuple(flags.gin_bindings),
            tuple(flags.gin_search_paths.split(",")),
        )
        if flags.compare or flags.sweep:
            run = recipe.load(asked)
    except ValueError as error:
        print(f"preflight: {error}", file=sys.stderr)
        return 2
    say = lambda line: print(line, file=sys.stderr, flush=True)
    if flags.compare:
        found = [compare_slices.best(asked, Subject(run, tpu, flags.offline), say) for tpu in tpus]
        print(f"{asked.name}, to as many sequences as it reads in {run.total_steps:,} steps:")
        print(compare_slices.table(found))
        _write(flags.json, compare_slices.as_json(found))
        return 0 if all(b.trial for b in found) else 1
    if flags.sweep:
        found = sweep.sweep(asked, Subject(run, tpus[0], flags.offline), say)
        print(sweep.table(found, tpus[0]))
        _write(flags.json, sweep.as_json(found))
        return 0 if any(trial.fits for trial in found) else 1
    return _inspect(asked, tpus[0], flags, say)


def _inspect(asked: recipe.Recipe, tpu: tpu_slices.Slice, flags: argparse.Namespace, say) -> int:
    cache = flags.cache or str(Path("runs/.compiled") / tpu.name)
    rows = checklist.inspect(asked, tpu, flags.offline, cache, say)
    place = f"{results.many(tpu.chips, 'chip')}, {results.many(tpu.hosts, 'host')}"
    print(f"{asked.name} on {tpu.name}: {place}\n")
    print(results.table(rows))
    if shown := results.texts(rows):
        print(f"\n{shown}")
    print(f"\n{results.count(rows)}")
    named = {row.check: {k: v for k, v in vars(row).items() if k != "check"} for row in rows}
    _write(flags.json, {"recipe": asked.name, "slice": tpu.name, "checks": named})
    return 0 if results.passed(rows) else 1


def _write(path: str | None, content) -> None:
    if path:
        Path(path).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
