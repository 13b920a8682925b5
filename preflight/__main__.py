"""Check a run before a TPU is rented for it, on any machine.

    python -m preflight --gin_file gin/ro_t5x_base.gin --slice v4-8
    python -m preflight --gin_file gin/ro_t5x_base.gin --slice v4-8 --offline --gin.BATCH_SIZE=256
    python -m preflight --gin_file gin/ro_t5x_base.gin --compare v4-8,v4-32,v5e-16,v6e-8
    python -m preflight --gin_file gin/ro_t5x_base.gin --slice v4-8 --sweep
    python -m preflight --gin_file gin/ro_t5x_tiny.gin --slice here  # the devices that are there

The status is 0 if no check fails, 1 if one does, 2 for a wrong command. A check that could not be
made reads "not checked" and does not fail.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import os
import sys

from preflight.aot import slices

if not {"here", "--slice=here"} & {*sys.argv}:  # before jax and tensorflow are loaded
    os.environ.update(slices.ENVIRONMENT)

import argparse
import json
import logging
from pathlib import Path
from typing import Any

from absl import logging as absl_logging

from common import arguments, tables
from common.errors import guarded
from preflight import here, search
from preflight.aot.recipe import Recipe, load
from preflight.aot.slices import Slice
from preflight.checks import checklist
from preflight.run_context import RunContext
from t5x.gin_utils import rewrite_gin_args

DEFAULT = "gin/ro_t5x_base.gin"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Return the flags; `--gin.NAME=value` as in every command."""
    parser = arguments.parser("python -m preflight", __doc__)
    add = parser.add_argument
    add("--gin_file", action="append", help=f"gin files, in order; default {DEFAULT}")
    add("--gin_bindings", action="append", default=[], help="'NAME = value', after the files")
    add("--gin_search_paths", default=".", help="folders to search for gin files")
    add("--slice", help="the TPU slice to rent: v4-8, v5e-16, …; or here")
    add("--compare", help="slices to compare, separated by commas")
    add("--sweep", action="store_true", help="try batch × remat × partitions on the slice")
    add("--offline", action="store_true", help="access nothing over the network")
    add("--json", type=arguments.text, help="file for the results as JSON")
    add(
        "--cache",
        type=arguments.text,
        help="folder for JAX's compilation cache; default runs/.compiled/<slice>",
    )
    flags = parser.parse_args(rewrite_gin_args(argv))
    if bool(flags.slice) == bool(flags.compare):
        parser.error("give either --slice NAME or --compare NAME,NAME,…")
    if flags.json:
        arguments.check_output_file("--json", flags.json)
    if flags.cache:
        arguments.check_output_folder("--cache", flags.cache, buckets_too=True)
    if flags.sweep and not flags.slice:
        parser.error("--sweep needs --slice NAME")
    if flags.slice == here.NAME and (flags.sweep or flags.cache):
        parser.error("--sweep and --cache are for slices; leave them out")
    return flags


@guarded
def main(argv: list[str] | None = None) -> int:
    """Run the requested command, print its result, and return the exit status."""
    absl_logging.set_verbosity(absl_logging.ERROR)
    for name in ("jax", "orbax", "huggingface_hub"):  # the results report what they warn of
        logging.getLogger(name).setLevel(logging.ERROR)
    say = lambda line: print(line, file=sys.stderr, flush=True)
    flags = parse_arguments(sys.argv[1:] if argv is None else argv)
    names = (flags.compare or flags.slice).split(",")
    is_here = flags.slice == here.NAME
    tpus = [here.find()] if is_here else [slices.find(name) for name in names]
    recipe = Recipe(
        tuple(flags.gin_file or [DEFAULT]),
        tuple(flags.gin_bindings),
        tuple(flags.gin_search_paths.split(",")),
    )
    run = load(recipe) if flags.compare or flags.sweep else None
    if run is None:
        return _check(recipe, tpus[0], flags, say)
    contexts = [RunContext(run, tpu, flags.offline) for tpu in tpus]
    if flags.compare:
        rows = [search.best_on_slice(recipe, context, say) for context in contexts]
        print(f"{recipe.name}, to as many sequences as it reads in {run.total_steps:,} steps:")
        print(search.table(rows, search.COMPARISON_COLUMNS))
        found = all(row["settings"] is not None for row in rows)
    else:
        rows = search.sweep_rows(search.sweep(recipe, contexts[0], say))
        print(f"{recipe.name} on {tpus[0].name}, {tpus[0].chip.hbm:.2f} GiB:")
        print(search.table(rows, search.SWEEP_COLUMNS))
        found = any(row["fits"] for row in rows)
    _write(flags.json, rows)
    return 0 if found else 1


def _check(recipe: Recipe, tpu: Slice, flags: argparse.Namespace, say: search.Say) -> int:
    cache = flags.cache or str(Path("runs/.compiled") / tpu.name)
    found = checklist.check_recipe(recipe, tpu, flags.offline, cache, say)
    if isinstance(tpu, here.LocalDevices):
        print(f"{recipe.name} here, on {tables.counted(tpu.chips, 'device')} ({tpu.name})\n")
    else:
        chips, hosts = tables.counted(tpu.chips, "chip"), tables.counted(tpu.hosts, "host")
        print(f"{recipe.name} on {tpu.name}: {chips}, {hosts}\n")
    status = tables.show(found)
    checks = {row.check: {k: v for k, v in vars(row).items() if k != "check"} for row in found}
    _write(flags.json, {"recipe": recipe.name, "slice": tpu.name, "checks": checks})
    return status


def _write(path: str | None, content: Any) -> None:
    if path:
        Path(path).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
