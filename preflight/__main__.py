"""Check a run before a TPU is rented for it, on any machine.

    python -m preflight --gin_file gin/ro_t5x_base.gin --slice v4-8
    python -m preflight --gin_file gin/ro_t5x_base.gin --slice v4-8 --offline --gin.BATCH_SIZE=256
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

from absl import logging as absl_logging

from common import arguments, tables
from common.errors import guarded, say
from common.new_files import replace_file
from preflight import here
from preflight.aot.recipe import Recipe, add_flags
from preflight.checks import checklist
from t5x.gin_utils import rewrite_gin_args

DEFAULT = "gin/ro_t5x_base.gin"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Return the flags; `--gin.NAME=value` as in every command."""
    parser = arguments.parser("python -m preflight", __doc__)
    add = parser.add_argument
    add_flags(parser, DEFAULT)
    add("--slice", required=True, help="the TPU slice to rent: v4-8, v5e-16, …; or here")
    add("--offline", action="store_true", help="access nothing over the network")
    add("--json", type=arguments.text, help="file for the results as JSON")
    add(
        "--cache",
        type=arguments.text,
        help="folder for JAX's compilation cache; default runs/.compiled/<slice>",
    )
    flags = parser.parse_args(rewrite_gin_args(argv))
    flags.gin_file = flags.gin_file or [DEFAULT]
    if flags.json:
        arguments.check_output_file("--json", flags.json)
    if flags.cache:
        arguments.check_output_folder("--cache", flags.cache, buckets_too=True)
    if flags.slice == here.NAME and flags.cache:
        parser.error("--cache is for slices; leave it out")
    return flags


@guarded
def main(argv: list[str] | None = None) -> int:
    """Check the recipe, print the table, and return the exit status."""
    absl_logging.set_verbosity(absl_logging.ERROR)
    for name in ("jax", "orbax", "huggingface_hub"):  # the results report what they warn of
        logging.getLogger(name).setLevel(logging.ERROR)
    flags = parse_arguments(sys.argv[1:] if argv is None else argv)
    tpu = here.find() if flags.slice == here.NAME else slices.find(flags.slice)
    recipe = Recipe.of_flags(flags)
    cache = flags.cache or str(Path("runs/.compiled") / tpu.name)
    results = checklist.check_recipe(recipe, tpu, flags.offline, cache, say)
    if isinstance(tpu, here.LocalDevices):
        print(f"{recipe.name} here, on {tables.counted(tpu.chips, 'device')} ({tpu.name})\n")
    else:
        chips, hosts = tables.counted(tpu.chips, "chip"), tables.counted(tpu.hosts, "host")
        print(f"{recipe.name} on {tpu.name}: {chips}, {hosts}\n")
    status = tables.show(results)
    if flags.json:
        checks = {
            row.check: {k: v for k, v in vars(row).items() if k != "check"} for row in results
        }
        content = {"recipe": recipe.name, "slice": tpu.name, "checks": checks}
        text = json.dumps(content, indent=2, ensure_ascii=False)
        replace_file(flags.json, f"{text}\n".encode())
    return status


if __name__ == "__main__":
    sys.exit(main())
