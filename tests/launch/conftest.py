"""An interpreter that only says how it was called, for scripts that start Python."""

import sys

import pytest

from fakes.shell import executable
from fakes.simulated_pod import Pod


@pytest.fixture
def recorder(tmp_path):
    """An interpreter that prints where and how it was called, as JSON."""
    code = tmp_path / "record.py"
    code.write_text(
        "import json, os, sys\n"
        "print(json.dumps({'argv': sys.argv[1:], 'cwd': os.getcwd(), 'env': dict(os.environ)}))\n"
    )
    return executable(
        tmp_path / "python", f'#!/usr/bin/env bash\nexec {sys.executable} {code} "$@"\n'
    )


@pytest.fixture
def pair(tmp_path):
    """A pod of two workers."""
    with Pod(tmp_path, workers=2) as pod:
        yield pod
