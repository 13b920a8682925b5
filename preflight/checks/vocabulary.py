"""The vocabulary's file: ids, sentinels, size, that task and model share it, and publishing."""

from pathlib import Path

import seqio

from common.errors import UserError
from common.tables import FAILS, WARNING, CheckResult, NotChecked, ok
from preflight.run_context import RunContext, is_remote
from t5x.start import publishable
from t5x.start.vocabulary import embedding_rows, verify_matching_vocabs
from tasks import vocabularies
from vocabulary.check import check_vocabulary

_TO_SET = "make it by `python -m vocabulary.train`, or set VOCABULARY_FILE to one"


def vocabulary(context: RunContext) -> CheckResult:
    """Check that the model's vocabulary suits T5 and is the task's.

    With --offline a missing file is not checked: the machine that trains may have it.
    """
    model = context.run.model
    words = model.output_vocabulary
    rows = embedding_rows(model)
    of_task = context.task.output_features["targets"].vocabulary
    paths = [vocabularies.file_of(v) for v in (words, of_task)]
    for path in filter(None, paths):
        context.require_reachable(path)
        if not is_remote(path) and not Path(path).is_file():
            if context.offline:
                raise NotChecked(f"there is no file {path} here; {_TO_SET} before training")
            raise UserError(why=f"there is no file {path}", to_set=_TO_SET)
    for cfg in context.datasets.values():
        verify_matching_vocabs(cfg, model)
    if not (paths[0] and isinstance(words, seqio.SentencePieceVocabulary)):
        name = paths[0] or type(words).__name__
        return ok(f"{name}, {words.vocab_size:,} ids of {rows or 0:,} rows")
    checks = check_vocabulary(paths[0], rows, getattr(words, "extra_ids", 0))
    for verdict in (FAILS, WARNING):
        if faults := [check for check in checks if check.verdict == verdict]:
            figure = "; ".join(f"{fault.check}: {fault.figure}" for fault in faults)
            return CheckResult(verdict, figure, next((f.to_set for f in faults if f.to_set), ""))
    return ok(f"{paths[0]}: {checks[-1].figure}, {len(checks)} checks passed")


def publishing(context: RunContext) -> CheckResult:
    """Check that the run, once it is trained, can be published with equal ids.

    Raise UserError with what differs.
    """
    context.require_vocabulary()
    first = lambda: publishable.first_lines(context.data)
    lines = lambda: context.read(context.task.source, first)
    return publishable.check(context.run.model, context.trainer.specs, lines)
