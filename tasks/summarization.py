"""Summarization: a text to its summary, measured by ROUGE.

    add("my_summaries", Rows("user/name", columns={"inputs": "text", "targets": "summary"}),
        vocabularies.t5_model)              # of a text that is not English: english=False

| task | text | vocabulary |
|---|---|---|
| cnn_dailymail | hub, abisee/cnn_dailymail 3.0.0 | T5's |

Texts of any hub set, CSV or JSONL by columns, or of two files line by line: `tasks.rows.Rows`.
"""

import re
from collections.abc import Sequence

from tasks import pairs, vocabularies
from tasks.rows import Rows
from tasks.text import sentence_split

PREFIX = "summarize: "
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class Words:
    """Words of any script for the rouge-score library, whose own has a to z and digits only."""

    def tokenize(self, text: str) -> list[str]:
        """Returns the words of a text, in small letters."""
        return re.findall(r"\w+", text.lower())


def rouge(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Returns mean F-measures of the rouge-score library, 0..100, with stemming; and mean lengths.

    It is for English: of other texts see `rouge_of_words`. rougeLsum compares sentence by sentence,
    cut as `tasks.text.sentence_split` does; mean_words and mean_target_words count words between
    blanks.
    """
    return _rouge(targets, predictions, use_stemmer=True)


def rouge_of_words(targets: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Returns what `rouge` does, of words as they are written, in any language."""
    return _rouge(targets, predictions, use_stemmer=False, tokenizer=Words())


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
    """Registers a task that summarizes; settings as `tasks.pairs.add` has them.

    Where the text is not `english`, ROUGE compares whole words of any letters and stems none.
    """
    metric = rouge if english else rouge_of_words
    return pairs.add(name, source, vocabulary, prefix, metric_fns=[metric], **settings)


CNN_DAILYMAIL = Rows(
    "abisee/cnn_dailymail",
    "3.0.0",
    columns={"inputs": "article", "targets": "highlights"},
    splits=("train", "validation", "test"),
)

add("cnn_dailymail", CNN_DAILYMAIL, vocabularies.t5_model)
