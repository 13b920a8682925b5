"""Tasks from text to text: translation, grammar correction, normalization, question answering.

    source = Rows(parallel={"train": ("train.ro", "train.en"), "validation": ("dev.ro", "dev.en")})
    add("ro_en", source, vocabularies.mt5_model, prefix="translate to English: ",
        metrics=("sacrebleu", "chrf"))

Each is one line. The metrics of `tasks.jobs.text_metrics` have names. `tasks.mixtures.add`
trains on several tasks at rates, and each keeps its metrics. Texts are columns of a hub set, CSV or
JSONL, or the lines of two files: `tasks.rows.Rows`.
"""

from collections.abc import Sequence

import seqio

from common.errors import UserError
from tasks import corpora, pairs
from tasks.corpus.source import CorpusSource
from tasks.jobs import text_metrics
from tasks.jobs.text_metrics import Metric

METRICS = ("sacrebleu", "chrf", "exact_match", "rouge", "cer", "wer")


def add(
    name: str,
    source: CorpusSource,
    vocabulary: corpora.Vocabulary,
    prefix: str = "",
    metrics: Sequence[str | Metric] = METRICS,
    **settings,
) -> seqio.Task:
    """Register a task whose source gives {"inputs", "targets"}.

    `metrics` are names of `tasks.jobs.text_metrics` or seqio metric functions; the other arguments
    are as in `tasks.pairs.add`. Raise UserError for a metric that is unknown or does not fit.
    """
    try:
        metric_fns = text_metrics.functions(metrics)
    except UserError as error:
        raise error.at(f"task {name}") from error
    return pairs.add(name, source, vocabulary, prefix, metric_fns, **settings)
