"""The page of wrong predictions shows all of them, escaped, from either kind of file."""

import json
import os

import pytest

from fakes.refuses import refuses
from report import misclassified
from report.misclassified import Example, page


def line(text, target, prediction, inputs="inputs"):
    shown = {"inputs_pretokenized": text, "targets_pretokenized": target}
    return json.dumps({inputs: shown, "prediction": prediction})


def test_both_kinds_of_files_are_read():
    lines = [line("a", "low", " low "), line("b", "low", "high", "input")]
    assert list(misclassified.read(lines)) == [
        Example("a", "low", "low"),
        Example("b", "low", "high"),
    ]


@pytest.mark.parametrize("bad", ["[]", '{"prediction": "a"}', "nothing"])
def test_a_line_that_is_not_a_prediction_is_named(bad):
    with refuses("line 2"):
        list(misclassified.read([line("a", "b", "c"), bad]))


def test_only_wrong_examples_are_shown_and_escaped():
    evil = '<script>alert("1")</script>'
    examples = [Example("right one", "low", "low"), Example(evil, "<b>", "low")]
    text = page(examples, evil)
    assert "right one" not in text
    assert "<script>" not in text
    assert "&lt;script&gt;alert(&quot;1&quot;)" in text
    assert "1 of 2 are right (50.00%)" in text
    assert "http:" not in text  # it needs no network
    assert "https:" not in text


def test_the_most_frequent_confusion_is_first_and_says_how_many_are_shown():
    wrong = [Example(f"often {i}", "a", "b") for i in range(9)] + [Example("once", "b", "a")]
    text = page(wrong, "t", most=5)
    assert text.index("a taken for b: 9, 5 of them shown") < text.index("b taken for a: 1")
    assert "often 4" in text
    assert "often 5" not in text


def test_an_empty_prediction_is_not_a_class_called_nothing():
    text = page([Example("x", "a", ""), Example("y", "a", "nothing")], "t")
    assert "a taken for (nothing): 1" in text
    assert "a taken for nothing: 1" in text
    assert "<th>(nothing)</th><th>nothing</th>" in text


def test_of_a_run_its_last_evaluation_is_read(tmp_path):
    folder = tmp_path / "inference_eval"
    folder.mkdir()
    for age, name in enumerate(("quality-20.jsonl", "quality-100.jsonl", "quality-metrics.jsonl")):
        (folder / name).write_text((line("a", "low", "high") + "\n") * (age + 1))
        os.utime(folder / name, (age, age))
    out = tmp_path / "wrong.html"
    assert misclassified.main([str(tmp_path), "-o", str(out)]) == 0
    assert "quality-100" in out.read_text()
    with pytest.raises(SystemExit) as refused:
        misclassified.main([str(tmp_path / "none"), "-o", str(out)])
    assert refused.value.code == 2


def test_each_run_has_a_page_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name / "inference_eval").mkdir(parents=True)
        (tmp_path / name / "inference_eval/a-1.jsonl").write_text(line("a", "low", "high"))
        misclassified.main([name])
    pages = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert pages == ["misclassified_one.html", "misclassified_two.html"]
