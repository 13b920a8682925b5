"""Reasons for which a test may be skipped by tests/run.sh; any other skip fails the run.

A key is how pytest's reason begins, its value why a machine may lack what the test needs.
"""

ALLOWED = {
    "there is no chromium on PATH": "a browser is not on PyPI; the pages are also parsed",
    "gcloud is not installed": "its SDK is not on PyPI; it only checks the stand-in's flags",
    "openssl makes the certificate": "a program of the system, used by the slow tests of buckets",
    "T5X_URL, AIRIO_URL, JESTIMATOR_URL": "upstream is on no package index; copies are named",
    "UPSTREAM_DIR names no folder": "upstream is on no package index; a checkout is named",
    "could not import 'tokamax'": "another attention, which only benchmarks/gpus.py measures",
    "could not import 'jax_cuda12_plugin'": "CUDA's packages are gigabytes, for a GPU alone",
    "no flock here": "a program of the system; launch/setup.sh also runs without it",
}


def is_allowed(reason: str) -> bool:
    """Return whether a skip for this reason is on the list."""
    return any(reason.removeprefix("Skipped: ").startswith(known) for known in ALLOWED)
