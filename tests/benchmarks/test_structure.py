import subprocess
import sys

import pytest

from benchmarks.structure import cycles, longest_chain, measure
from fakes.paths import ROOT

FILES = {
    "t5x/__init__.py": "",
    "t5x/train.py": """
        '''Trains.'''
        from t5x import models
        from t5x.ops import attention

        class Job:
            # A comment on a line of its own.
            def run(self):
                '''Run.'''
                import t5x.ops.attention  # imported lazily, counted once
        """,
    "t5x/models.py": "from t5x.ops.attention import attend\n",
    "t5x/ops/__init__.py": "",
    "t5x/ops/attention.py": "class Job:\n    pass\n\ndef attend():\n    return 1\n",
    "tests/t5x/ops/test_attention.py": "",
}


@pytest.fixture
def measures(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        lines = [line.removeprefix("        ") for line in text.strip("\n").splitlines()]
        (tmp_path / path).write_text("".join(f"{line}\n" for line in lines))
    return dict(measure(tmp_path))


def test_sizes_count_code_without_comments_and_docstrings(measures):
    assert measures["files / lines / code lines"] == "5 / 16 / 10"
    assert measures["full-line comments per code line"] == "10.0% (1)"
    assert measures["functions with a docstring"] == "50%"


def test_each_import_between_two_modules_is_one_edge(measures):
    assert measures["import edges"] == 3
    assert measures["longest import chain"] == "2 imports"
    assert measures["import cycles"] == 0
    assert measures["modules with one importer"] == 1


def test_a_sub_package_is_one_component(measures):
    assert measures["t5x/"] == "3 components, 3 layers, 3 imports"
    assert measures["tasks/"] == "0 components, 0 layers, 0 imports"


def test_components_that_import_each_other_are_cyclic(tmp_path):
    (tmp_path / "t5x/ops").mkdir(parents=True)
    (tmp_path / "t5x/a.py").write_text("from t5x.ops import b\n\ndef f():\n    pass\n")
    (tmp_path / "t5x/c.py").write_text("")
    (tmp_path / "t5x/ops/b.py").write_text("from t5x import c\n")
    (tmp_path / "t5x/ops/d.py").write_text("from t5x import a\n")
    found = dict(measure(tmp_path))
    assert found["t5x/"] == "3 components, cyclic, 3 imports"
    assert found["import cycles"] == 0


def test_repeated_class_names_and_modules_without_a_test_are_found(measures):
    assert measures["class names defined twice"] == "Job"
    assert measures["modules without a test of their name"] == 2
    assert measures["most entries in a folder"] == "4 in t5x/"


def test_modules_that_reach_each_other_are_one_cycle():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert cycles(graph) == 1
    assert longest_chain(graph) == 0


def test_the_command_prints_this_checkout():
    command = [sys.executable, ROOT / "benchmarks" / "structure.py"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "import cycles                          0\n" in printed
