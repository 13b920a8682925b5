"""A result of the first host reaches all hosts, and so does an error of any host."""

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from common.errors import UserError
from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.multihost.broadcast import broadcast_from_first, raise_together

KINDS = (DamagedCheckpoint, ValueError)


def fail(error):
    raise error


@pytest.fixture
def others(monkeypatch):
    """The codes of hosts 0 and 2 of three; the code of host 1 is appended."""
    said = []

    def gather(mine):
        said.append(int(mine))
        return np.array([said[0], mine, said[1]])

    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(multihost_utils, "process_allgather", gather)
    return said


def test_a_single_host_asks_no_other():
    assert raise_together(lambda: 7, *KINDS) == 7
    with pytest.raises(DamagedCheckpoint, match=r"^mine"):
        raise_together(lambda: fail(DamagedCheckpoint("mine")), *KINDS)


def test_without_an_error_each_host_has_its_own_result(others):
    others += [0, 0]
    assert raise_together(lambda: 7, *KINDS) == 7


@pytest.mark.parametrize(("code", "kind"), [(1, DamagedCheckpoint), (2, UserError)])
def test_an_error_on_one_host_is_raised_on_all_as_the_same_kind(others, code, kind):
    others += [0, code]
    with pytest.raises(kind, match="Host 2 of 3 failed") as raised:
        raise_together(lambda: 7, *KINDS)
    assert type(raised.value) is kind  # a UserError for a ValueError


def test_several_hosts_that_failed_are_listed(others):
    others += [1, 2]
    with pytest.raises(UserError, match=r"^Hosts 0 and 2 of 3 failed"):
        raise_together(lambda: 7, *KINDS)


def test_a_host_raises_its_own_error(others):
    others += [0, 1]
    with pytest.raises(ValueError, match=r"^mine"):
        raise_together(lambda: fail(ValueError("mine")), *KINDS)
    assert others[-1] == 2


def test_a_result_of_the_first_host_reaches_all(monkeypatch):
    wire = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    send = lambda value: wire.append(value) or value
    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", send)

    def refuse():
        raise ValueError("no such corpus")

    assert broadcast_from_first(lambda: {"a": [1, "ș"]}) == {"a": [1, "ș"]}
    with pytest.raises(ValueError, match="no such corpus"):
        broadcast_from_first(refuse)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", lambda _: wire.pop(0))
    never = lambda: pytest.fail("asked on another host")
    assert broadcast_from_first(never) == {"a": [1, "ș"]}
    with pytest.raises(ValueError, match="no such corpus"):
        broadcast_from_first(never)
