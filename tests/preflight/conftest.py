"""Corpora in temporary folders, and tasks over them that are removed after a test."""

import dataclasses
import json

import pytest
import seqio

from fakes import valid_run
from tasks import corpora

MODEL = "data/ro_mini/ro_mini.model"


@pytest.fixture
def write_corpus(tmp_path):
    """Write a corpus with the same texts in each split and file, and return its folder."""

    def write(texts, column="text", files=1):
        lines = "".join(json.dumps({column: text}) + "\n" for text in texts)
        for split in ("train", "validation"):
            for i in range(files):
                (tmp_path / f"{split}-{i}.jsonl").write_text(lines)
        return str(tmp_path)

    return write


@pytest.fixture
def task():
    """Add a task over a source, and return the datasets of a run on it."""
    added = []

    def add(source, vocabulary=MODEL, **settings):
        name = f"temporary_{len(added)}"
        corpora.add(name, source, vocabulary, **settings)
        added.append(name)
        return {
            "train_dataset_cfg": dataclasses.replace(valid_run.TRAIN, mixture_or_task_name=name),
            "train_eval_dataset_cfg": None,
        }

    yield add
    for name in added:
        seqio.TaskRegistry.remove(name)
