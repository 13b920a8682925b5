"""A task on the bundled corpus that replaces CNN/DailyMail: a text, and its beginning."""

from tasks import pairs, vocabularies
from tasks.jobs import summarization
from tasks.rows import Rows

FILES = {
    "train": vocabularies.resolve("data/ro_mini/train-*.jsonl"),
    "validation": vocabularies.resolve("data/ro_mini/validation.jsonl"),
}

pairs.add(
    "mini_summaries",
    Rows(files=FILES, columns={"inputs": "text", "targets": "text"}),
    vocabularies.ro_mini_model,
    summarization.PREFIX,
)
