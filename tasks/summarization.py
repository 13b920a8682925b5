"""Summarization, measured by ROUGE.

    add("my_summaries", Rows("user/name", columns={"inputs": "text", "targets": "summary"}),
        vocabularies.t5_model)              # for other languages: english=False

| task | text | vocabulary |
|---|---|---|
| cnn_dailymail | hub, abisee/cnn_dailymail 3.0.0 | T5's |

Texts are columns of a hub set, CSV or JSONL, or the lines of two files: `tasks.rows.Rows`.
"""

import re
from collections.abc import Sequence

from tasks import pairs, vocabularies
from tasks.rows import Rows
from tasks.text import sentence_split

PREFIX = "summarize: "
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class UnicodeTokenizer:
    """Words of any script for the rouge-score library, whose own are of a to z and digits only."""

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text, in lower case."""
        return re.findall(r"\w+", text.lower())


def rouge(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return mean F-measures of the rouge-score library, 0..100, with stemming; and mean lengths.

    For English; for other languages see `rouge_of_words`. rougeLsum compares sentence by sentence
    (`tasks.text.sentence_split`); mean_words and mean_target_words count words between blanks.
    """
    return _rouge(targets, predictions, use_stemmer=True)


def rouge_of_words(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return the scores of `rouge` for any language, without stemming."""
    return _rouge(targets, predictions, use_stemmer=False, tokenizer=UnicodeTokenizer())


def _rouge(targets, predictions, **settings) -> dict[str, float]:
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(ROUGE, **settings)
    lines = lambda text: "\n".join(sentence_split.split(text))
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


def add(
    name: str, source: Rows, vocabulary, prefix: str = PREFIX, english: bool = True, **settings
):
    """Register a summarization task, see `tasks.pairs.add`; ROUGE stems words if `english`."""
    metric = rouge if english else rouge_of_words
    return pairs.add(name, source, vocabulary, prefix, metric_fns=[metric], **settings)


CNN_DAILYMAIL = Rows(
    "abisee/cnn_dailymail",
    "3.0.0",
    columns={"inputs": "article", "targets": "highlights"},
    splits=("train", "validation", "test"),
)

add("cnn_dailymail", CNN_DAILYMAIL, vocabularies.t5_model)
