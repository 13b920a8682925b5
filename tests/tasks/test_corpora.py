"""One line turns a corpus into a task, without reading it."""

import numpy as np
import pytest
import seqio

from tasks import corpora, vocabularies
from tasks.corpus.source import CorpusSource


@pytest.fixture
def source(tmp_path):
    (tmp_path / "train.txt").write_text("Ana are mere şi pere.\n" * 40)
    return CorpusSource(str(tmp_path), splits=["train"])


@pytest.fixture
def name():
    yield "one_line"
    seqio.TaskRegistry.remove("one_line")


def test_registration_reads_nothing(name):
    corpora.add(name, CorpusSource("/nowhere"), lambda: pytest.fail("the vocabulary was loaded"))


def test_documents_become_examples_with_eos(source, name):
    task = corpora.add(name, source, vocabularies.ro_mini_model, "prefix_lm", cedilla=True)
    rows = task.get_dataset({"inputs": 32, "targets": 32}, "train", shuffle=False, seed=0)
    rows = list(rows.as_numpy_iterator())
    assert all(row[side][-1] == 1 for row in rows for side in ("inputs", "targets"))
    ids = np.concatenate([part[:-1] for row in rows for part in (row["inputs"], row["targets"])])
    text = vocabularies.sentencepiece(vocabularies.ro_mini_model).decode(ids.tolist())
    assert text.startswith("Ana are mere și pere.")
