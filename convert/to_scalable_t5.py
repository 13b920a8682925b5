"""Write a checkpoint as upstream T5X's `examples/scalable_t5` saves and restores it.

  write_checkpoint("runs/ro_t5x_base", Path("runs/ro_scalable"))

writes `runs/ro_scalable/checkpoint_<step>` with parameters and optimizer state, `config.gin` with
the network's sizes and, if the run has one, `vocabulary.model`. One stored array is in memory at a
time: all layers of one parameter.
"""

from pathlib import Path

from etils import epath

from command_line import arguments
from convert.run import model_dir
from convert.run.rewrite import check_written, last_checkpoint, staged_run, write_run
from convert.run.vocabulary import bound_extra_ids
from t5x.checkpointing import scalable_t5

CONFIG_HELP = "network if there is no gin: t5_1_1/base, a .gin, or a .json"


def write_checkpoint(folder: str, run_folder: Path, config: str | None = None) -> str:
    """Write the last checkpoint of a run, or one checkpoint, into a new run; return its path.

    Args:
      folder: a run's MODEL_DIR or one checkpoint.
      run_folder: of the new run.
      config: as `convert --config` has it.

    Raises:
      ValueError: there is no checkpoint, it is not of the named network, `run_folder` holds a run,
        or the disk is full; nothing is left then.
    """
    old = last_checkpoint(folder, config)
    run = model_dir.open_run(folder)
    vocabulary, bindings = run.vocabulary(), model_dir.network(run, config)[1]
    extra_ids = bound_extra_ids(bindings) if vocabulary else None
    with staged_run(run_folder) as temporary:
        arrays = scalable_t5.scanned(old.arrays)
        path = write_run(
            temporary, old.step, arrays, old.sizes, network="scalable_t5", extra_ids=extra_ids
        )
        check_written(path, scalable_t5.with_own_tables(old.arrays))
        if vocabulary:
            (temporary / model_dir.VOCABULARY).write_bytes(epath.Path(vocabulary).read_bytes())
    return str(run_folder.resolve() / f"checkpoint_{old.step}")


def main(argv: list[str]) -> int:
    """Run `python -m convert to_scalable_t5 FOLDER OUT`; errors are ValueErrors of one sentence."""
    parser = arguments.parser(
        "python -m convert to_scalable_t5", "A checkpoint in the layout of upstream's scalable_t5."
    )
    add = parser.add_argument
    add("folder", type=arguments.text, help="a run's MODEL_DIR or one checkpoint")
    add("out", type=arguments.text, help="receives checkpoint_<step> and config.gin")
    add("--config", type=arguments.text, help=CONFIG_HELP)
    args = parser.parse_args(argv)
    arguments.check_output_folder("OUT", args.out)
    print(write_checkpoint(args.folder, Path(args.out), args.config))
    return 0
