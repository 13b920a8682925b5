"""What all hosts do together, all of them do or none."""

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from t5x.checkpointing.lazy_array import DamagedCheckpoint
from t5x.multihost.broadcast import together

KINDS = (DamagedCheckpoint, ValueError)


def fail(error):
    raise error


@pytest.fixture
def others(monkeypatch):
    """What hosts 0 and 2 of three have to say, which see what host 1 says."""
    said = []

    def gather(mine):
        said.append(int(mine))
        return np.array([said[0], mine, said[1]])

    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(multihost_utils, "process_allgather", gather)
    return said


def test_alone_it_is_done_and_nobody_asked():
    assert together(lambda: 7, *KINDS) == 7
    with pytest.raises(DamagedCheckpoint, match=r"^mine$"):
        together(lambda: fail(DamagedCheckpoint("mine")), *KINDS)


def test_where_all_are_well_each_has_its_own(others):
    others += [0, 0]
    assert together(lambda: 7, *KINDS) == 7


@pytest.mark.parametrize(("code", "kind"), [(1, DamagedCheckpoint), (2, ValueError)])
def test_what_fails_on_one_host_fails_on_all_as_the_same_kind(others, code, kind):
    others += [0, code]
    with pytest.raises(kind, match="Host 2 of 3 could not go on; its own log") as raised:
        together(lambda: 7, *KINDS)
    assert type(raised.value) is kind


def test_a_host_raises_what_it_found_itself(others):
    others += [0, 1]
    with pytest.raises(ValueError, match=r"^mine$"):
        together(lambda: fail(ValueError("mine")), *KINDS)
    assert others[-1] == 2
