"""Run TensorBoard without the notices of TensorFlow, through which it reads buckets.

python -m report.tensorboard --logdir=runs      # flags of TensorBoard; launch/monitor.sh calls it
"""

if __name__ == "__main__":  # before any library writes to stderr
    from command_line import quiet

    quiet.start()

import sys
from types import ModuleType

from tensorboard.main import run_main

from command_line import buckets


def main() -> None:
    """Serve until Ctrl-C."""
    if any(f"{scheme}://" in flag for flag in sys.argv for scheme in buckets.SCHEMES):
        # TensorFlow reads events in C++, which knows no such address. Where this module exists,
        # TensorBoard takes its own file functions instead, which read by fsspec.
        sys.modules["tensorboard.compat.notf"] = ModuleType("notf")
    run_main()


if __name__ == "__main__":
    main()
