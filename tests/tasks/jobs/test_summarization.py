"""Summaries are measured by ROUGE, with stems in English only."""

import seqio

from tasks import vocabularies
from tasks.jobs import summarization, text_metrics
from tasks.rows import Rows


def test_the_registered_task_is_measured_as_before():
    task = seqio.TaskRegistry.get("cnn_dailymail")
    assert task.metric_fns == [text_metrics.rouge_english]
    assert task.prefix == "summarize: "


def test_other_languages_are_not_stemmed():
    source = Rows(files={"train": "none.jsonl"}, columns={"inputs": "a", "targets": "b"})
    task = summarization.add("summaries_test", source, vocabularies.byt5(), english=False)
    seqio.TaskRegistry.remove("summaries_test")
    assert task.metric_fns == [text_metrics.rouge]
