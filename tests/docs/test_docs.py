"""Every promise of docs/operations.md names a test that is there."""

import re

from fakes.paths import ROOT


def test_every_promise_names_tests_that_are_there():
    file, named = None, 0
    for path, test in re.findall(
        r"`(tests/[\w/]+\.py)?::(\w+)`", (ROOT / "docs/operations.md").read_text()
    ):
        file = path or file  # `::test_b` stands for another test of the file before it
        assert f"\ndef {test}(" in (ROOT / file).read_text(), f"{file}::{test}"
        named += 1
    assert named > 20
