"""The examples of docs/fine_tuning.md, taken from the page and run."""

import importlib
import json
import sys

import pytest
import seqio

from fakes.pages import blocks, section

NAMES = ("ro_en", "ro_answers")


@pytest.fixture
def pairs_of_the_page(tmp_path, monkeypatch):
    """The module of the section on texts, imported where its files are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (block,) = (
        b for b in blocks(section("docs/fine_tuning.md", "From text to text")) if b.language
    )
    (tmp_path / "my_pairs.py").write_text(block.text)
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.ro").write_text("unu doi\ntrei\n")
        (tmp_path / f"{split}.en").write_text("one two\nthree\n")
    rows = [{"question": f"cine {i}?", "context": "Ana", "answer": "Ana"} for i in range(200)]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    importlib.import_module("my_pairs")
    yield
    del sys.modules["my_pairs"]
    for name in NAMES:
        seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove("ro_both")


def test_pairs_of_texts(pairs_of_the_page):
    for name, first, metrics in (
        ("ro_en", "translate to English: unu doi", {"sacrebleu", "chrf"}),
        ("ro_answers", "question: cine 0? context: Ana", {"exact_match", "rougeLsum"}),
    ):
        task = seqio.TaskRegistry.get(name)
        rows = task.get_dataset({"inputs": 32, "targets": 16}, "train", shuffle=False)
        assert next(rows.as_numpy_iterator())["inputs_pretokenized"].decode() == first
        assert "validation" in task.splits
        names = [values for metric in task.metric_fns for values in metric(["a"], ["a"])]
        assert metrics < set(names)
    rates = seqio.MixtureRegistry.get("ro_both")._task_to_rate
    assert rates == {"ro_en": 0.75, "ro_answers": 0.25}
