"""What every test relies on: eight fake CPU devices, no network, golden numbers as trees."""

import os
import signal

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from absl import logging

from fakes.golden import Golden

# A shell's background jobs ignore Ctrl-C, and so would what tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def as_loud_as_before():
    """A door that a test opens may silence warnings, for its own process as it thinks."""
    before = logging.get_verbosity()
    yield
    logging.set_verbosity(before)


@pytest.fixture(scope="session", params=["t5_1_1", "t5_1_0"])
def golden(request) -> Golden:
    return Golden(request.param)
