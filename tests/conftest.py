"""Shared set-up: eight fake CPU devices, fast compilation, no network, golden numbers, skips."""

import collections
import gc
import os
import shutil
import signal
import sys
import tempfile

from fakes.paths import FAST_COMPILATION

os.environ["JAX_PLATFORMS"] = "cpu"
# Eight devices cost a test nothing that uses one of them.
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8", FAST_COMPILATION]
)
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["HF_HUB_OFFLINE"] = "1"

import allowed_skips
import jax
import pytest
from absl import logging

import convert  # noqa: F401  # before a test imports TensorFlow and PyTorch
from fakes.golden import Golden

gc.set_threshold(20_000, 20, 20)  # most objects of JAX and TensorFlow stay

# Compiled programs of this test session, shared by the processes of pytest-xdist.
PROGRAMS = "T5X_TEST_PROGRAMS"

# Background jobs of a shell ignore Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    about = "run every M-th of the chosen tests, from the N-th on: 1/3, 2/3 and 3/3 are all"
    text = lambda part: slice_of(part) and part  # pytest-xdist sends it to its processes
    parser.addoption("--part", metavar="N/M", type=text, default="1/1", help=about)


def slice_of(part):
    """Return the slice of a part; tests of a file last similarly long, so that parts do too."""
    number, parts = map(int, part.split("/"))
    if not 1 <= number <= parts:
        raise ValueError
    return slice(number - 1, None, parts)


@pytest.hookimpl(trylast=True)  # after those that `-m` and `-k` leave out
def pytest_collection_modifyitems(config, items):
    chosen = items[slice_of(config.getoption("part"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        os.environ[PROGRAMS] = tempfile.mkdtemp(prefix="t5x-test-programs-")
    jax.config.update("jax_compilation_cache_dir", os.environ[PROGRAMS])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(PROGRAMS), ignore_errors=True)


def pytest_collection_finish():
    """Keep what was imported out of later garbage collections, and pipelines as they are written.

    Optimizing a graph takes longer than running it on a few records.
    """
    gc.freeze()
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def pytest_terminal_summary(terminalreporter):
    """List the skips with their reasons."""
    reports = terminalreporter.stats.get("skipped", [])
    counts = collections.Counter(str(report.longrepr[2]) for report in reports)
    if not counts:
        return
    terminalreporter.section("skipped tests")
    for reason, count in counts.items():
        note = "" if allowed_skips.is_allowed(reason) else "  (not in tests/allowed_skips.py)"
        terminalreporter.line(f"{count:4}  {reason.removeprefix('Skipped: ')}{note}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fail, where STRICT_SKIPS or CI is set, for a skip that is not in `allowed_skips`."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    strict = os.environ.get("STRICT_SKIPS") or os.environ.get("CI")
    if reporter is None or hasattr(session.config, "workerinput") or not strict:
        return
    reasons = [str(report.longrepr[2]) for report in reporter.stats.get("skipped", [])]
    if not all(map(allowed_skips.is_allowed, reasons)) and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def same_verbosity():
    """Restore the log level: an entry point that a test calls may raise it."""
    before = logging.get_verbosity()
    yield
    logging.set_verbosity(before)


@pytest.fixture
def gin_apart():
    """An empty gin configuration; the previous one returns at the end."""
    from fakes import valid_run

    with valid_run.gin_apart():
        yield


@pytest.fixture(scope="session", params=["t5_1_1", "t5_1_0"])
def golden(request) -> Golden:
    return Golden(request.param)
