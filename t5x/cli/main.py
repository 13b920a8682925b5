"""Define the flags of every entry point, parse gin, and call the entry point's main function.

python -m t5x.train --gin_file=gin/ro_t5x_tiny.gin --gin.TRAIN_STEPS=500 --dry_run
"""

import glob
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import tensorflow as tf
from absl import flags, logging

import gin
from t5x import gin_utils
from t5x.cli import log_capture
from t5x.monitoring import compile_stats
from t5x.multihost import startup_check
from t5x.multihost.preemption import Interruption

# A process that sends no heartbeat for so long is dead, and the others end. Heartbeats come from a
# thread of their own, also while a process computes or compiles.
HEARTBEAT_SECONDS = 30

flags.DEFINE_multi_string("gin_file", [], "Gin files, in order; later bindings win.")
flags.DEFINE_multi_string("gin_bindings", [], "Single bindings, 'NAME = value'.")
flags.DEFINE_list("gin_search_paths", ["."], "Folders in which gin files are looked for.")
flags.DEFINE_bool("dry_run", False, "Build everything, print the configuration, train nothing.")
flags.DEFINE_bool("report", False, "At the end print what XLA has compiled, and the memory used.")
flags.DEFINE_integer(
    "interrupted_status", 0, "Exit status of a run that was preempted, once it is saved."
)
flags.DEFINE_string("coordinator_address", None, "host:port of process 0, outside TPU pods.")
flags.DEFINE_integer("process_count", None, "Number of processes, outside TPU pods.")
flags.DEFINE_integer("process_index", None, "This process, from 0, outside TPU pods.")
flags.DEFINE_float("roll_call_seconds", 300, "How long to wait for the other processes.")


def run(main: Callable[..., Any], keeps_programs: bool = False) -> None:
    """Parse flags and gin, join the other processes, and call `main` with its bindings.

    With `keeps_programs` compiled programs are kept in MODEL_DIR/compiled for the next start.
    """

    def guarded(_: list[str]) -> None:
        logging.set_verbosity(logging.INFO)
        log_capture.redirect_loggers()  # absl has added a handler
        tf.config.set_visible_devices([], "GPU")  # it only reads the data
        configured = gin.external_configurable(main, module="__main__")
        values = flags.FLAGS
        gin_utils.parse_gin_flags(values.gin_search_paths, values.gin_file, values.gin_bindings)
        join_others(values)
        if values.dry_run:
            configured(dry_run=True)
            print(gin.operative_config_str())
            sys.exit(0)
        if keeps_programs and (model_dir := gin_utils.macro("MODEL_DIR")):
            compile_stats.keep_programs(os.path.join(model_dir, "compiled"))
        stats = compile_stats.CompileStats()
        configured()
        if values.report:
            print(stats.text(), flush=True)
        if Interruption.ended_one and values.interrupted_status:
            sys.exit(values.interrupted_status)

    try:
        gin_utils.run(guarded)
    except BaseException as error:
        status = error.code if isinstance(error, SystemExit) else 1
        if status and jax.distributed.is_initialized():
            # The other hosts wait for this one. They notice its end sooner than any barrier.
            try:
                if not isinstance(error, SystemExit):
                    sys.excepthook(type(error), error, error.__traceback__)
            finally:  # also where the terminal is closed or the disk full
                log_capture.exit_now(status if isinstance(status, int) else 1)
        raise


def join_others(values: flags.FlagValues) -> None:
    """Start JAX with the other processes, if any, once all have started with the same facts."""
    given = (values.coordinator_address, values.process_count, values.process_index)
    if (values.process_count or values.process_index) and not values.coordinator_address:
        raise ValueError(
            f"--process_count={values.process_count} --process_index={values.process_index} need "
            "--coordinator_address=HOST:PORT of process 0; without it this process trains alone."
        )
    if not (values.coordinator_address or on_tpu_machine()):
        return
    seconds = values.roll_call_seconds
    worker = startup_check.find_worker(*given, seconds)
    startup_check.wait_for_all(worker, startup_check.facts(gin.config_str()), seconds)
    address, count, index = given if values.coordinator_address else (None, None, None)
    jax.distributed.initialize(address, count, index, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)


def on_tpu_machine() -> bool:
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
