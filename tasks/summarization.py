"""Summarization: a text to its summary, measured by ROUGE.

    add("my_summaries", Rows("user/name", columns={"inputs": "text", "targets": "summary"}),
        vocabularies.t5_model)

| task | text | vocabulary |
|---|---|---|
| cnn_dailymail | hub, abisee/cnn_dailymail 3.0.0 | T5's |

Texts of any hub set, CSV or JSONL by columns, or of two files line by line: `tasks.rows.Rows`.
"""

from collections.abc import Sequence

from tasks import pairs, sentences, vocabularies
from tasks.rows import Rows

PREFIX = "summarize: "
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def rouge(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Returns mean F-measures of the rouge-score library, 0..100, with stemming; and mean lengths.

    rougeLsum compares sentence by sentence, cut as `tasks.sentences` does; mean_words and
    mean_target_words count words between blanks.
    """
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(ROUGE, use_stemmer=True)
    lines = lambda text: "\n".join(sentences.split(text))
    found = [
        scorer.score(lines(target), lines(prediction))
        for target, prediction in zip(targets, predictions, strict=True)
    ]
    n = max(len(found), 1)
    return {
        **{name: 100 * sum(each[name].fmeasure for each in found) / n for name in ROUGE},
        "mean_words": sum(len(text.split()) for text in predictions) / n,
        "mean_target_words": sum(len(text.split()) for text in targets) / n,
    }


def add(name: str, source: Rows, vocabulary, prefix: str = PREFIX, **settings):
    """Registers a task that summarizes; settings as `tasks.pairs.add` has them."""
    return pairs.add(name, source, vocabulary, prefix, metric_fns=[rouge], **settings)


CNN_DAILYMAIL = Rows(
    "abisee/cnn_dailymail",
    "3.0.0",
    columns={"inputs": "article", "targets": "highlights"},
    splits=("train", "validation", "test"),
)

add("cnn_dailymail", CNN_DAILYMAIL, vocabularies.t5_model)
