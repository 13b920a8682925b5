"""Expect an error by its fields, whatever its words are.

with refuses("BATCH_SIZE", 3):
    check(batch_size=3)
with refuses("a.jsonl", where="task ro") as refusal:
    read("a.jsonl")
refusal.value.to_set            # the error itself
with refuses("--size", 100):    # a command, which prints its error and ends
    train.main(["--size", "100"])
"""

import contextlib
import types
from collections.abc import Iterator
from unittest import mock

import pytest

from common import errors
from common.errors import CommandError, UserError


@contextlib.contextmanager
def refuses(setting=None, value=..., where=None, kind: type[CommandError] = UserError):
    """Expect an error of a class whose fields are these; those that are not given may be any."""
    refusal = types.SimpleNamespace(value=None)
    with reported() as reports, pytest.raises((kind, SystemExit)) as raised:
        yield refusal
    is_command = isinstance(raised.value, SystemExit)
    assert not is_command or reports, raised.value
    error = refusal.value = reports[-1] if is_command else raised.value
    assert isinstance(error, kind), error
    assert setting is None or str(error.setting) == str(setting), error
    assert value is ... or error.value == value, error
    assert where is None or where in error.where, error
    assert error.why or error.setting, error
    assert " object at 0x" not in str(error), error


@contextlib.contextmanager
def reported() -> Iterator[list[BaseException]]:
    """Collect the errors that commands report meanwhile."""
    collected: list[BaseException] = []
    report = errors.report

    def collect(error: BaseException, *stopped: str) -> int:
        collected.append(error)
        return report(error, *stopped)

    with mock.patch.object(errors, "report", collect):
        yield collected
