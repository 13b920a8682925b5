"""The parts of --part are all tests, each once, and of each file about as many."""

import argparse
import itertools

import pytest

from fakes.paths import ROOT


@pytest.fixture
def conftest(request):
    return request.config.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))


def test_the_parts_are_all_tests_each_once(conftest):
    tests = [(file, number) for file in "abc" for number in range(7)]
    parts = [tests[conftest.slice_of(f"{n}/3")] for n in (1, 2, 3)]
    assert sorted(itertools.chain(*parts)) == tests
    for part in parts:
        assert {sum(of == file for of, _ in part) for file in "abc"} <= {2, 3}


@pytest.mark.parametrize("part", ["0/3", "4/3", "3", "a/b", "1/2/3", ""])
def test_what_is_no_part_is_refused(part, conftest):
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--part", type=conftest.slice_of)
    with pytest.raises(argparse.ArgumentError):
        parser.parse_args(["--part", part])
