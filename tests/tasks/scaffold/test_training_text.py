"""The text of a language, or of files, names its files and makes its source."""

import shlex

import pytest
import seqio  # noqa: F401  before TensorFlow's own

from fakes.refuses import refuses
from tasks.corpus.source import CorpusSource
from tasks.languages import table
from tasks.scaffold.training_text import language_named, language_text, own_text


def source_of(text):
    return eval(text.source, {"CorpusSource": CorpusSource})


@pytest.mark.parametrize(
    ("name", "module", "code"),
    [
        ("czech", "czech", "cs"),
        ("nob_Latn", "norwegian_bokmal", "nb"),
        ("ron_Cyrl", "romanian_cyrl", "ron_cyrl"),
        ("greek", "modern_greek", "el"),
    ],
)
def test_files_are_named_after_the_language_or_by_name(name, module, code):
    text = language_text(table.find(name))
    assert (text.module, text.short) == (module, code)
    named = language_text(table.find(name), "mine")
    assert (named.module, named.short, named.source) == ("mine", "mine", text.source)


@pytest.mark.parametrize(("name", "largest"), [("serbian", "srp_Cyrl"), ("kurdish", "ckb_Arab")])
def test_a_name_of_several_large_languages_is_refused(name, largest):
    with refuses(name) as refusal:
        language_named(name)
    assert largest in refusal.value.why
    assert language_named(largest).code == largest


def test_the_column_and_the_documents_of_own_text_are_in_the_task(tmp_path):
    (tmp_path / "messages.csv").write_text('source;target\n"an ""ö""";unu\ntwo;doi\n')
    text = own_text(str(tmp_path), "uk", column='{source}\n"{target}"')
    source = source_of(text)
    assert {*source.peek("train"), *source.peek("validation")} == {'an "ö"\n"unu"', 'two\n"doi"'}
    assert f"--column={source.column.name}" in shlex.split(text.flags)
    (tmp_path / "messages.csv").rename(tmp_path / "poems.txt")
    (tmp_path / "poems.txt").write_text("a\nb\n\nc\nd\n\ne\nf\n\n")
    assert "--documents" in own_text(str(tmp_path), "uk").summary
    text = own_text(str(tmp_path), "uk", documents="paragraphs")
    assert "--documents" not in text.summary
    assert {*source_of(text).peek("train")} < {"a b", "c d", "e f"}
    assert "--documents=paragraphs" in shlex.split(text.flags)


def test_a_part_is_for_validation_unless_there_is_a_split_for_it(tmp_path):
    lines = "".join(f"{n} lines of text\n" for n in range(1000))
    (tmp_path / "train.txt").write_text(lines)
    assert own_text(str(tmp_path), "uk").source.endswith(', held_out={"validation": 0.01})')
    (tmp_path / "dev.txt").write_text("a line\n")
    text = own_text(str(tmp_path), "uk")
    assert "held_out" not in text.source
    assert source_of(text).peek("validation") == ["a line"]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_files_without_text_are_refused(tmp_path, content):
    (tmp_path / "a.txt").write_text(content)
    with refuses() as refusal:
        own_text(str(tmp_path), "uk")
    assert "no usable text" in str(refusal.value)
