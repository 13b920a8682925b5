"""Processes with TensorFlow import no triton, which would crash them."""

import importlib.util
import subprocess
import sys
import types

import pytest

from command_line import no_triton


@pytest.mark.parametrize("package", ["t5x", "tasks"])
def test_triton_is_not_found_where_tensorflow_is_used(package, tmp_path):
    (tmp_path / "triton.py").touch()
    program = f"import {package}, sys; sys.path.insert(0, {str(tmp_path)!r}); import triton"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ModuleNotFoundError: import of triton halted" in done.stderr


def test_one_that_was_imported_before_stays(monkeypatch):
    module = types.ModuleType("triton")
    monkeypatch.setitem(sys.modules, "triton", module)
    no_triton.provide()
    assert sys.modules["triton"] is module
    monkeypatch.delitem(sys.modules, "triton")
    no_triton.provide()
    assert importlib.util.find_spec("triton") is None
    monkeypatch.delitem(sys.modules, "triton")
