"""Templates are filled line by line; a user's files are written all or none."""

import ast

import pytest

from fakes.refuses import refuses
from tasks.scaffold import files
from tasks.scaffold.files import check_name, docstring, fill, write


def test_a_line_of_one_name_has_the_lines_of_its_value(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_TEMPLATES", tmp_path)
    (tmp_path / "a.py.template").write_text(
        'add(\n    "$name",\n    $rows\n    $more\n)\n$name$$\n'
    )
    text = fill("a.py", name="uk", rows="a=1,\nb={\n    2},", more="")
    assert text == 'add(\n    "uk",\n    a=1,\n    b={\n        2},\n)\nuk$\n'
    with pytest.raises(KeyError):
        fill("a.py", name="uk", rows="")


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\n", "\r"])
def test_a_line_end_in_a_users_text_stays_in_its_string(end, tmp_path, monkeypatch):
    """Unicode has line ends that Python's source code has not, and a label may hold any."""
    monkeypatch.setattr(files, "_TEMPLATES", tmp_path)
    (tmp_path / "a.py.template").write_text("add(\n    $rows\n)\n")
    label = f"one{end}two"
    text = fill("a.py", rows=f"labels={files.python({label: label})},")
    (argument,) = ast.parse(text).body[0].value.keywords
    assert ast.literal_eval(argument.value) == {label: label}


def test_a_name_can_be_a_module_of_a_users_task():
    check_name("uk", "--name")
    check_name("romanian", "--name")
    for name in ("Мова", "a-b", "is", "corpus", "mixtures", "new_language"):
        with refuses("--name", name):
            check_name(name, "--name")


PATHS = ("/data/*.txt", r"D:\xuk\new", '/a "b"/c', 'three """ or """', r'a\""" \" b', "на диску")


@pytest.mark.parametrize("path", PATHS)
def test_a_docstring_quotes_any_path(path):
    module = ast.parse(docstring(f"{path}.") + "\n")
    assert ast.get_docstring(module, clean=False) == f"{path}."


def test_files_are_written_all_or_none(tmp_path):
    (tmp_path / "gin").mkdir()
    (tmp_path / "gin/a.gin").write_text("mine")
    texts = {"b.py": "b", "gin/a.gin": "a"}
    with refuses(tmp_path / "gin/a.gin") as refusal:
        write(texts, tmp_path, overwrite=False)
    assert "--overwrite" in refusal.value.to_set
    assert not (tmp_path / "b.py").exists()
    assert write(texts, tmp_path, overwrite=True) == ["b.py", "gin/a.gin"]
    assert (tmp_path / "gin/a.gin").read_text() == "a"
