"""The flags of every door, and how a door opens: gin is parsed, then its main is called.

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

# A process that has not been heard of for so long is dead, and the others end. It speaks from a
# thread of its own, whatever it computes or compiles.
HEARTBEAT_SECONDS = 30

flags.DEFINE_multi_string("gin_file", [], "Gin files, in order; later bindings win.")
flags.DEFINE_multi_string("gin_bindings", [], "Single bindings, 'NAME = value'.")
flags.DEFINE_list("gin_search_paths", ["."], "Folders that gin files are looked for in.")
flags.DEFINE_bool("dry_run", False, "Build everything, print the configuration, train nothing.")
flags.DEFINE_bool("report", False, "At the end say what XLA has compiled, and the memory.")
flags.DEFINE_integer(
    "interrupted_status", 0, "Exit status of a run that a notice has ended, once it is saved."
)
flags.DEFINE_string("coordinator_address", None, "host:port of process 0, outside TPU pods.")
flags.DEFINE_integer("process_count", None, "Number of processes, outside TPU pods.")
flags.DEFINE_integer("process_index", None, "This process, from 0, outside TPU pods.")
flags.DEFINE_float("roll_call_seconds", 300, "How long the other processes are waited for.")


def run(main: Callable[..., Any], keeps_programs: bool = False) -> None:
    """Parses flags and gin, joins the other processes, and calls `main` with its bindings.

    With `keeps_programs` what is compiled is kept in MODEL_DIR/compiled for the next start.
    """

    def guarded(_: list[str]) -> None:
        logging.set_verbosity(logging.INFO)
        log_capture.redirect_loggers()  # absl has added a handler
        tf.config.set_visible_devices([], "GPU")  # it reads the data only
        configured = gin.external_configurable(main, module="__main__")
        values = flags.FLAGS
        gin_utils.parse_gin_flags(values.gin_search_paths, values.gin_file, values.gin_bindings)
        join_others(values)
        if values.dry_run:
            configured(dry_run=True)
            print(gin.operative_config_str())
            sys.exit(0)
        if keeps_programs and (model_dir := gin_utils.macro("MODEL_DIR")):
            compile_stats.keep(os.path.join(model_dir, "compiled"))
        seen = compile_stats.Compilations()
        configured()
        if values.report:
            print(seen.text(), flush=True)
        if Interruption.ended_one and values.interrupted_status:
            sys.exit(values.interrupted_status)

    try:
        gin_utils.run(guarded)
    except BaseException as error:
        status = error.code if isinstance(error, SystemExit) else 1
        if status and jax.distributed.is_initialized():
            # The others wait for this process: sooner than by any barrier they hear of its end.
            try:
                if not isinstance(error, SystemExit):
                    sys.excepthook(type(error), error, error.__traceback__)
            finally:  # though nobody may be there to read it, or no room
                log_capture.exit_now(status if isinstance(status, int) else 1)
        raise


def join_others(values: flags.FlagValues) -> None:
    """Starts JAX with the other processes, if there are any, once all are there and alike."""
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
    known = given if values.coordinator_address else (None, None, None)  # JAX detects them
    jax.distributed.initialize(*known, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)


def on_tpu_machine() -> bool:
    """True on a worker of a TPU slice, unless JAX is told to use something else.

    Its chips are /dev/accel0… or, newer, /dev/vfio/0…, which other vendors' devices may have too.
    """
    if "tpu" not in os.environ.get("JAX_PLATFORMS", "tpu").split(","):
        return False
    if glob.glob("/dev/accel[0-9]*"):
        return True
    vendors = (pathlib.Path(p).read_text() for p in glob.glob("/sys/bus/pci/devices/*/vendor"))
    google = any(vendor.strip() == "0x1ae0" for vendor in vendors)
    return google and bool(glob.glob("/dev/vfio/[0-9]*"))
