"""Print the flags with which a recipe's batch fits a slice: nothing if it does as it is.

    python -m preflight.fit --gin_file gin/ro_t5x_base.gin --slice v6e-8
    --gin.trainer.Trainer.num_microbatches=2

`launch/tpu.py supervise --any` asks before it takes a slice of one type or another. The batch keeps
its size, so that the run goes on with the same batches on every type. Other flags of the trainer
are ignored. The status is 2 if the recipe does not fit, or cannot be compiled for the slice.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import os
import sys

from preflight.aot import slices

if __name__ == "__main__":  # before jax and tensorflow are loaded
    os.environ.update(slices.ENVIRONMENT)

from common import arguments
from common.errors import UserError, guarded, say
from preflight.aot.recipe import Recipe, add_flags, load
from preflight.run_context import RunContext
from preflight.search import BATCH, Trial, cheapest, compile_trial, fit
from t5x.gin_utils import rewrite_gin_args


def fitting_trial(recipe: Recipe, context: RunContext) -> Trial:
    """Return the cheapest trial that fits the slice, of the recipe as it is or with other settings.

    Raises:
      UserError: no settings that keep the batch make it fit, or it cannot be compiled.
    """
    trial = compile_trial(recipe, context)
    if trial.fits:
        return trial
    trials = []
    if trial.out_of_memory:
        trials = fit(recipe, context, trial, say)
    same_batch = [t for t in trials if BATCH not in dict(t.settings)]
    if (best := cheapest(same_batch)) is None:
        to_set = "name a larger type, or lower BATCH_SIZE for all"
        raise UserError(f"{recipe.name} on {context.tpu.name}", why=trial.outcome, to_set=to_set)
    return best


@guarded
def main(argv: list[str] | None = None) -> None:
    """Print the flags, one a line."""
    parser = arguments.parser("python -m preflight.fit", __doc__)
    add_flags(parser)
    parser.add_argument("--slice", required=True, help="the TPU slice: v4-8, v5e-16, …")
    flags, _ = parser.parse_known_args(rewrite_gin_args(sys.argv[1:] if argv is None else argv))
    recipe = Recipe.of_flags(flags)
    context = RunContext(load(recipe), slices.find(flags.slice), offline=True)
    trial = fitting_trial(recipe, context)
    for name, value in trial.settings:
        print(f"--gin.{name}={value!r}")


if __name__ == "__main__":
    sys.exit(main())
