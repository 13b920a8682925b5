"""The files of the corpus that a run trains on."""

from command_line.results import NotChecked
from preflight.run_context import RunContext
from tasks.io.files import CorpusFile
from tasks.io.retry import RetryPolicy
from tasks.sources import CorpusSource

_RETRY_POLICY = RetryPolicy(limit_s=30.0)


def list_files(context: RunContext) -> list[CorpusFile]:
    """Return the files of the split trained on, or raise NotChecked."""
    source = context.task.source
    context.require_corpus(source)
    if not isinstance(source, CorpusSource):
        raise NotChecked(f"{type(source).__name__} does not list its files")
    return context.read(source, lambda: source.list_files(context.data.split, _RETRY_POLICY))
