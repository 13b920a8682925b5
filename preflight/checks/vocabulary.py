"""The check of the vocabulary's file: ids, sentinels, size, and that task and model share it."""

from pathlib import Path

from common.tables import CheckResult, NotChecked, ok, warning
from preflight.run_context import RunContext, is_remote
from t5x.input_pipeline.checks import verify_matching_vocabs
from vocabulary.check import check_vocabulary

_HOW = "make it by `python -m vocabulary.train`, or set VOCABULARY_FILE to one"


def vocabulary(context: RunContext) -> CheckResult:
    """Check that the model's vocabulary suits T5 and is the task's.

    With --offline a missing file is not checked: the machine that trains may have it.
    """
    model = context.run.model
    own = model.output_vocabulary
    rows = getattr(getattr(model.module, "config", None), "vocab_size", None)
    of_task = context.task.output_features["targets"].vocabulary
    paths = [getattr(v, "sentencepiece_model_file", None) for v in (own, of_task)]
    for path in filter(None, paths):
        context.require_reachable(path)
        if not is_remote(path) and not Path(path).is_file():
            if context.offline:
                raise NotChecked(f"there is no file {path} here; {_HOW} before training")
            raise ValueError(f"there is no file {path}; {_HOW}.")
    for cfg in context.datasets.values():
        verify_matching_vocabs(cfg, model)
    if not paths[0]:
        return ok(f"{type(own).__name__}, {own.vocab_size:,} ids of {rows or 0:,} rows")
    checks = check_vocabulary(paths[0], rows, getattr(own, "extra_ids", 0))
    with_status = lambda status: [f"{c.name}: {c.detail}" for c in checks if c.status == status]
    if failures := with_status("fail"):
        raise ValueError("; ".join(failures))
    if warnings := with_status("warn"):
        return warning("; ".join(warnings))
    return ok(f"{paths[0]}: {checks[-1].detail}, {len(checks)} checks passed")
