"""Run a module of upstream T5X on this repository's gin files and tasks.

    T5X_DIR=~/upstream/t5x PYTHONPATH=$T5X_DIR:. python -P launch/run_upstream.py t5x.train …

The current directory is the repository, so relative paths mean the same as for our own trainer.
Python and gin would find the repository's t5x/ before upstream's: -P and a reader of gin files put
upstream's first. Modules that upstream lacks, such as t5x.classifier, come from here.
"""

import os
import runpy
import sys
import tempfile
from typing import Any


def import_tensorflow() -> None:
    """Import TensorFlow without its notices, which are shown if the import fails.

    It prints notices of CPU instructions and CUDA drivers before it reads any setting. It only
    reads data, so jax gets the GPUs.
    """
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            import tensorflow

            tensorflow.config.set_visible_devices([], "GPU")
            held.truncate(0)
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            held.seek(0)
            sys.stderr.write(held.read().decode())


def read_gin_files_of(checkout: str) -> None:
    """Let gin take files of t5x/ from a checkout before it looks into the current directory."""
    import gin

    path = lambda name: os.path.join(checkout, name)
    has = lambda name: name.startswith("t5x/") and os.path.isfile(path(name))
    # gin's own order of readers begins with the current directory, and its public functions only
    # append; gin-config is frozen at 0.5.0. gin closes the file.
    gin.config._FILE_READERS.insert(0, (lambda name: open(path(name)), has))  # noqa: SIM115
    gin.config.register_finalize_hook(make_paths_absolute)
    gin.config.register_finalize_hook(resume_without_position)


def make_paths_absolute(config: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Make local paths of checkpoints absolute, as Orbax needs them."""
    for (scope, selector), values in config.items():
        for name, value in values.items():
            is_path = scope == "INITIAL_CHECKPOINT_PATH" or (
                name == "path" and "Restore" in selector
            )
            if is_path and isinstance(value, str) and value and "://" not in value:
                values[name] = os.path.abspath(value)


def resume_without_position(config: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Turn `save_dataset` off where MODEL_DIR has a checkpoint without a position of upstream's.

    Upstream restores the data position of a run that saves one, and stops where there is none. In a
    checkpoint of ours the position is another pipeline's.
    """
    from t5x.checkpointing import layout  # after t5x/ is on upstream's path

    run = config.get(("MODEL_DIR", "gin.macro"), {}).get("value")
    newest = layout.latest_checkpoint(run) if isinstance(run, str) else None
    if not newest:
        return
    is_ours = layout.HAS_POSITION in layout.custom_metadata(newest)
    if layout.dataset_folder(newest) and not is_ours:
        return
    for (_, selector), values in config.items():
        if selector.endswith("SaveCheckpointConfig") and values.get("save_dataset"):
            values["save_dataset"] = False
            lack = "has no data position of upstream T5X: the corpus starts over"
            print(f"{newest} {lack}, and save_dataset is False.", file=sys.stderr)


def main() -> None:
    """Run the module that the first argument names; name a package that is missing."""
    import_tensorflow()
    module, checkout = sys.argv.pop(1), os.environ["T5X_DIR"]
    try:
        read_gin_files_of(checkout)
        import t5x

        t5x.__path__.append(os.path.abspath("t5x"))
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if os.path.isdir(package):  # a package of the checkout or of this repository
            raise
        print(
            f"upstream T5X in {checkout} needs the package {package}, which {sys.executable} does "
            "not have: bash launch/upstream.sh DIR makes a checkout with its packages, for "
            "T5X_DIR=DIR/t5x.",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
