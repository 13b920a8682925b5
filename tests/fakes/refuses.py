"""Expect an error by its fields, whatever its words are.

with refuses("BATCH_SIZE", 3):
    check(batch_size=3)
with refuses("a.jsonl", where="task ro") as refusal:
    read("a.jsonl")
refusal.value.to_set            # the error itself
"""

import contextlib

import pytest

from common.errors import CommandError, UserError


@contextlib.contextmanager
def refuses(setting=None, value=..., where=None, kind: type[CommandError] = UserError):
    """Expect an error of a class whose fields are these; those that are not given may be any."""
    with pytest.raises(kind) as refusal:
        yield refusal
    error = refusal.value
    assert setting is None or str(error.setting) == str(setting), error
    assert value is ... or error.value == value, error
    assert where is None or where in error.where, error
    assert error.why or error.setting, error
