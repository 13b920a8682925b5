import pytest

from benchmarks.structure import cycles, longest_chain, report

FILES = {
    "t5x/__init__.py": "",
    "t5x/train.py": """
        '''Trains.'''
        from t5x import models
        from t5x.kernels import attention

        class Job:
            # A comment on a line of its own.
            def run(self):
                '''Run.'''
                import t5x.kernels.attention  # imported lazily, counted once
        """,
    "t5x/models.py": "from t5x.kernels.attention import attend\n",
    "t5x/kernels/__init__.py": "",
    "t5x/kernels/attention.py": "def attend():\n" + "    x = 2\n" * 61,
    "tests/t5x/kernels/test_attention.py": "\n",
    "tests/conftest.py": "",
}


@pytest.fixture
def lines(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        lines = [line.removeprefix("        ") for line in text.strip("\n").splitlines()]
        (tmp_path / path).write_text("".join(f"{line}\n" for line in lines))
    return [" ".join(line.split()) for line in report(tmp_path)]


def test_sizes_count_code_without_comments_and_docstrings(lines):
    assert lines[1:4] == ["t5x 5 73 68 3 3 0", "tests 2 0 0", "product 5 73 68"]


def test_long_functions_chain_and_cycles_are_of_the_packages(lines):
    assert lines[4:] == [
        "functions over 60 lines: 1",
        "62 t5x/kernels/attention.py attend",
        "import cycles: 0",
        "longest import chain: 2 imports",
    ]


def test_modules_that_reach_each_other_are_one_cycle():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert cycles(graph) == [["a", "b", "c"]]
    assert longest_chain({"a": {"b"}, "b": set(), "c": set()}) == 1
