"""How much text a corpus has follows from its files."""

import json

import pytest

from tasks.corpus.source import CorpusSource
from tasks.look.size import text_size


@pytest.mark.parametrize("records", [20, 5000])  # less and more than is read of a file
@pytest.mark.parametrize("corpus", ["./data/ro{}", "data/ro{}"])  # the second as a data set has it
def test_the_text_of_lines_is_measured_without_their_other_fields(
    corpus, records, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    corpus = corpus.format(records)
    (tmp_path / corpus).mkdir(parents=True)
    text = "Ana are mere și pere. " * 20
    line = json.dumps({"id": "x" * len(text), "text": text}, ensure_ascii=False)
    (tmp_path / corpus / "train.jsonl").write_text(f"{line}\n" * records)
    size = text_size(CorpusSource(corpus), "train")
    assert size.text_bytes == pytest.approx(records * len(text.encode()), rel=0.01)
