"""Defines the flags of every entry point, parses gin, and calls the entry point's main function.

python -m t5x.train --gin_file=gin/ro_t5x_tiny.gin --gin.TRAIN_STEPS=500 --dry_run
"""

import contextlib
import functools
import glob
import inspect
import io
import os
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import jax
import seqio
import tensorflow as tf
from absl import flags, logging

import gin
from common import errors, log
from common.arguments import check_address, spelled, version
from common.errors import UserError, nearest
from common.proxy import without_proxy
from t5x import gin_utils
from t5x.checkpointing.async_save import AsyncSave
from t5x.monitoring import compile_stats, program_cache
from t5x.multihost import roll_call
from t5x.multihost.preemption import Interruption
from t5x.multihost.worker import find_worker

flags.DEFINE_multi_string("gin_file", [], "Gin files, in order; later bindings win.")
flags.DEFINE_multi_string("gin_bindings", [], "Single bindings, 'NAME = value'.")
flags.DEFINE_list("gin_search_paths", ["."], "Folders in which gin files are looked for.")
flags.DEFINE_bool("dry_run", False, "Build and check everything, print the checks, train nothing.")
flags.DEFINE_bool("print_config", False, "With --dry_run, print the configuration first.")
flags.DEFINE_bool("report", False, "At the end print what XLA has compiled, and the memory used.")
flags.DEFINE_bool(
    "take_over", False, "Train where another run trains; that one stops before its next save."
)
flags.DEFINE_bool(
    "allow_unpublishable", False, "Train what could not be published, or would have other ids."
)
flags.DEFINE_integer(
    "interrupted_status",
    0,
    "Exit status of a run that was preempted, once it is saved.",
    lower_bound=0,
    upper_bound=255,
)
flags.DEFINE_string("tfds_data_dir", None, "Folder of the data sets of TFDS, for all tasks.")
flags.DEFINE_list(
    "seqio_additional_cache_dirs", [], "More folders with the offline caches of tasks."
)
flags.DEFINE_string("coordinator_address", None, "host:port of process 0, outside TPU pods.")
flags.DEFINE_integer("process_count", None, "Number of processes, outside TPU pods.", lower_bound=1)
flags.DEFINE_integer(
    "process_index", None, "This process, from 0, outside TPU pods.", lower_bound=0
)
flags.DEFINE_float(
    "roll_call_seconds", 300, "How long to wait for the other processes.", 0, upper_bound=1e6
)

# A process that sends no heartbeat for so long counts as dead, and the others end. A thread of its
# own sends heartbeats, also while a process computes or compiles.
HEARTBEAT_SECONDS = 30


def run(main: Callable[..., Any]) -> None:
    """Parse flags and gin, join the other processes, and call `main` with its bindings.

    The flags --take_over and --allow_unpublishable become arguments of `main`.
    """
    try:
        gin_utils.run(lambda _: _run(main, flags.FLAGS), parse_flags)
    except BaseException as error:
        end_at_once(error)
        raise


def _run(main: Callable[..., Any], values: flags.FlagValues) -> None:
    _check_flags(main, values)
    logging.set_verbosity(logging.INFO)
    log.redirect_loggers()  # absl has added a handler
    _set_up_tensorflow(values)
    configured = gin.external_configurable(main, module="__main__")
    gin_utils.parse_gin_flags(values.gin_search_paths, values.gin_file, values.gin_bindings)
    join_others(values)
    configured = functools.partial(configured, **dict.fromkeys(_permissions(values), True))
    if values.dry_run:
        _dry_run(configured, values.print_config)
        return
    program_cache.keep_programs(os.environ)
    stats = compile_stats.CompileStats()
    configured()
    if values.report:
        print(stats.text(), flush=True)
    if Interruption.ended_one and values.interrupted_status:
        sys.exit(values.interrupted_status)


def _permissions(values: flags.FlagValues) -> list[str]:
    """Return the flags set on the command line that only `t5x.train` has."""
    return [name for name in ("take_over", "allow_unpublishable") if values[name].value]


def _check_flags(main: Callable[..., Any], values: flags.FlagValues) -> None:
    if not (values.gin_file or values.gin_bindings):
        raise UserError(
            why="no recipe is given: --gin_file=gin/ro_t5x_tiny.gin names one",
            to_set="--help has an example",
        )
    for folder in values.seqio_additional_cache_dirs:
        if not tf.io.gfile.isdir(folder):
            setting = "--seqio_additional_cache_dirs"
            raise UserError(setting, folder, "which is no folder", "name one with caches")
    parameters = inspect.signature(main).parameters
    if foreign := [name for name in _permissions(values) if name not in parameters]:
        why = "is for t5x.train, which alone starts runs"
        raise UserError(f"--{foreign[0]}", why=why, to_set="leave it out")
    if values.print_config and not values.dry_run:
        to_set = "add it, or read MODEL_DIR/config.gin of the run"
        raise UserError("--print_config", why="is for --dry_run", to_set=to_set)


def _set_up_tensorflow(values: flags.FlagValues) -> None:
    # With it epath would read buckets through gcsfs, which lists a folder in itself; a save reads
    # all files of one.
    os.environ.pop("EPATH_USE_TF", None)
    tf.config.set_visible_devices([], "GPU")  # it only reads the data
    # Grappler takes 0.6 s of a core for the pipelines' functions, which get no faster by it.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    if values.tfds_data_dir:
        seqio.set_tfds_data_dir_override(values.tfds_data_dir)
    for folder in values.seqio_additional_cache_dirs:
        check_address("--seqio_additional_cache_dirs", folder)
    seqio.add_global_cache_dirs(values.seqio_additional_cache_dirs)


def _dry_run(configured: Callable[..., Any], print_config: bool) -> None:
    """Check everything, then print the configuration, if asked for, and the table."""
    table = io.StringIO()
    try:
        with contextlib.redirect_stdout(table):
            configured(dry_run=True)
        if print_config:
            print(gin.operative_config_str())  # only now it is known what is used
    finally:  # also of a run that it refuses
        print(table.getvalue(), end="", flush=True)


def end_at_once(error: BaseException) -> None:
    """End the process, if it runs a command, after an error or an abandoned save.

    In a pod the other hosts wait for this one, and notice its end before any barrier does. And
    whatever failed or hung may have left threads that Python would wait for.
    """
    status = (error.code or 0) if isinstance(error, SystemExit) else 1
    in_command = log.is_started() or jax.distributed.is_initialized()
    if not in_command or not (status or AsyncSave.abandoned):
        return
    try:
        if isinstance(error, Exception):
            errors.report(error)
    finally:  # also where the disk is full
        log.exit_now(status if isinstance(status, int) else 1)


def parse_flags(argv: list[str]) -> list[str]:
    """Parse the command line and return the program's name, or print the help and exit.

    Raise UserError for an unknown flag, a wrong value, or an argument that is no flag.
    """
    if {"--help", "-h"} & {*argv[1:]}:
        print(sys.modules["__main__"].__doc__)
        print(flags.FLAGS.module_help(sys.modules[__name__]))
        sys.exit(0)
    if "--version" in argv[1:]:
        print(version())
        sys.exit(0)
    try:
        program, *others = flags.FLAGS(spelled(argv, {f"--{name}" for name in flags.FLAGS}))
    except flags.UnrecognizedFlagError as error:
        hint = nearest(error.flagname, flags.FLAGS)
        why = f"is not a flag{hint} (--help lists all flags)"
        raise UserError(f"--{error.flagname}", why=why) from error
    except flags.Error as error:  # its text names the flag: flag --process_count=x: …
        raise UserError(" ".join(str(error).split()), why="(--help lists all flags)") from error
    if others:
        why = "is not a flag: flags begin with --, such as --gin.TRAIN_STEPS=1000"
        raise UserError(repr(others[0]), why=why)
    return [program]


def join_others(values: flags.FlagValues) -> None:
    """Start JAX with the other processes, if any, once all have started with the same settings."""
    pod = (values.coordinator_address, values.process_count, values.process_index)
    if (values.process_count or values.process_index) and not values.coordinator_address:
        raise UserError(
            f"--process_count={values.process_count} --process_index={values.process_index}",
            why="need --coordinator_address=HOST:PORT of process 0",
            to_set="without it this process trains alone",
        )
    port = re.search(r".:(\d{1,5})$", values.coordinator_address or "")
    if values.coordinator_address and not (port and 0 < int(port[1]) < 2**16):
        raise UserError(
            f"--coordinator_address={values.coordinator_address}",
            why="has no port from 1 to 65535",
            to_set="write HOST:PORT of process 0",
        )
    if not (values.coordinator_address or is_tpu_machine()):
        return
    seconds = values.roll_call_seconds
    if worker := find_worker(*pod, os.environ):
        roll_call.wait_for_all(worker, roll_call.facts(gin.config_str()), seconds)
        os.environ.update(without_proxy(worker.host_and_port[0], os.environ))
    address, count, index = pod if values.coordinator_address else (None, None, None)
    jax.distributed.initialize(address, count, index, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)


def is_tpu_machine() -> bool:
    """Return whether this is a worker of a TPU slice and JAX_PLATFORMS allows the TPU.

    Its chips are /dev/accel0… or, newer, /dev/vfio/0…, which other vendors' devices may have too.
    """
    if "tpu" not in os.environ.get("JAX_PLATFORMS", "tpu").split(","):
        return False
    if glob.glob("/dev/accel[0-9]*"):
        return True
    vendors = (pathlib.Path(p).read_text() for p in glob.glob("/sys/bus/pci/devices/*/vendor"))
    google = any(vendor.strip() == "0x1ae0" for vendor in vendors)
    return google and bool(glob.glob("/dev/vfio/[0-9]*"))
