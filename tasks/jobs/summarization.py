"""Summarization, measured by ROUGE.

    add("my_summaries", Rows("user/name", columns={"inputs": "text", "targets": "summary"}),
        vocabularies.t5_model)              # for other languages: english=False

| task | text | vocabulary |
|---|---|---|
| cnn_dailymail | hub, abisee/cnn_dailymail 3.0.0 | T5's |

Texts are columns of a hub set, CSV or JSONL, or the lines of two files: `tasks.rows.Rows`.
"""

from tasks import vocabularies
from tasks.jobs import text_to_text
from tasks.rows import Rows

PREFIX = "summarize: "


def add(
    name: str, source: Rows, vocabulary, prefix: str = PREFIX, english: bool = True, **settings
):
    """Register a summarization task, see `tasks.pairs.add`; ROUGE stems words if `english`."""
    metrics = ["rouge_english" if english else "rouge"]
    return text_to_text.add(name, source, vocabulary, prefix, metrics, **settings)


CNN_DAILYMAIL = Rows(
    "abisee/cnn_dailymail",
    "3.0.0",
    columns={"inputs": "article", "targets": "highlights"},
    splits=("train", "validation", "test"),
)

add("cnn_dailymail", CNN_DAILYMAIL, vocabularies.t5_model)
