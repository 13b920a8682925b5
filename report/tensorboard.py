"""Run TensorBoard without the notices of TensorFlow, through which it reads buckets.

python -m report.tensorboard --logdir=runs      # flags of TensorBoard; launch/monitor.sh calls it
"""

if __name__ == "__main__":  # before any library writes to stderr
    from command_line import quiet

    quiet.start()

from tensorboard.main import run_main


def main() -> None:
    """Serve until Ctrl-C."""
    run_main()


if __name__ == "__main__":
    main()
