"""Transient errors are retried, permanent ones are raised at once."""

import datetime
import email.utils
import http.client
import socket
import ssl
import urllib.error

import gcsfs
import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from tasks.corpus.storage import retry


def caused(error, cause):
    error.__cause__ = cause
    return error


QUICK = retry.RetryPolicy(limit_s=20, first_s=0.01, longest_s=0.02)


def test_pauses_double_obey_the_server_and_end():
    now, pauses = [0.0], []

    def pause(seconds):
        pauses.append(seconds)
        now[0] += seconds

    def fail():
        raise urllib.error.HTTPError("u", 429, "slow down", {"Retry-After": "50"}, None)

    limits = retry.RetryPolicy(limit_s=1000, first_s=1, longest_s=100)
    with pytest.raises(urllib.error.HTTPError):
        retry.retry(fail, "x", limits, lambda: now[0], pause)
    assert 1000 - (50 + 100) < now[0] <= 1000  # it ends where the longest pause might not fit
    assert min(pauses) > 50
    assert len(set(pauses)) == len(pauses)  # many hosts do not return together


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "90"},
        {"Retry-After": "date"},
        {"RateLimit": '"api";r=0;t=90'},
        {"RateLimit": '"day";r=7;t=9000, "hour";r=0;t=90', "RateLimit-Policy": '"hour";q=9;w=3600'},
        {"RateLimit": "limit=100, remaining=0, reset=90"},
        {"RateLimit-Limit": "9", "RateLimit-Remaining": "0", "RateLimit-Reset": "90"},
        {"X-RateLimit-Reset": "time"},
        {"Retry-After": "90", "RateLimit": '"api";r=0;t=5'},
    ],
    ids=str,
)
@pytest.mark.parametrize("code", [429, 503])
def test_a_server_is_asked_again_when_it_says_so(headers, code):
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=90)
    now = {"date": email.utils.format_datetime(at, usegmt=True), "time": str(at.timestamp())}
    headers = {name: now.get(value, value) for name, value in headers.items()}
    pauses = []

    def fail():
        if not pauses:
            raise urllib.error.HTTPError("u", code, "back soon", headers, None)
        return "read"

    assert retry.retry(fail, "x", retry.RetryPolicy(), pause=pauses.append) == "read"
    assert 85 < pauses[0] <= 90 * 1.25 + 1


@pytest.mark.parametrize("header", ['"api";r=5;t=90', "soon", '"api";r=0', ""])
def test_a_limit_that_is_not_used_up_is_not_waited_for(header):
    error = urllib.error.HTTPError("u", 503, "", {"RateLimit": header, "Retry-After": header}, None)
    pauses = []

    def fail():
        if not pauses:
            raise error

    retry.retry(fail, "x", retry.RetryPolicy(), pause=pauses.append)
    assert pauses[0] <= 1


def of_botocore(name, *bases, **fields):
    """Return an error of botocore, which not everyone installs."""
    kind = type(name, bases or (Exception,), {"__module__": "botocore.exceptions"} | fields)
    return kind(name)


NO_CONNECTION = of_botocore("ConnectionError").__class__
STATUS = lambda code: {"response": {"ResponseMetadata": {"HTTPStatusCode": code}}}


@pytest.mark.parametrize(
    "error",
    [
        of_botocore("EndpointConnectionError", NO_CONNECTION),
        of_botocore("ClientError", **STATUS(503)),
        TimeoutError(),
        ConnectionResetError(),
        http.client.IncompleteRead(b""),
        urllib.error.URLError(socket.gaierror(-3, "Temporary failure in name resolution")),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
        urllib.error.HTTPError("u", 429, "", {}, None),
        urllib.error.HTTPError("u", 502, "", {}, None),
        gcsfs.retry.HttpError({"code": 503, "message": "a bucket's outage"}),
        gcsfs.retry.ChecksumError(),
    ],
    ids=repr,
)
def test_a_transient_error_is_retried(error):
    outcomes = [error, error, "read"]

    def attempt():
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert retry.retry(attempt, "x", QUICK, pause=lambda _: None) == "read"


@pytest.mark.parametrize(
    "error",
    [
        lambda: of_botocore("NoCredentialsError"),
        lambda: of_botocore("ClientError", **STATUS(403)),
        FileNotFoundError,
        PermissionError,
        ValueError,
        OSError,
        lambda: gcsfs.retry.HttpError({"code": 401, "message": "no such account"}),
        lambda: EOFError("Compressed file ended before the end-of-stream marker was reached"),
        lambda: urllib.error.HTTPError("u", 501, "", {}, None),
        lambda: http.client.InvalidURL("URL can't contain control characters"),
        lambda: OfflineModeIsEnabled("HF_HUB_OFFLINE is set"),
        lambda: urllib.error.URLError(ssl.SSLCertVerificationError("expired")),
        lambda: caused(ConnectionError("no answer"), ssl.SSLCertVerificationError("expired")),
        lambda: caused(ValueError("unset HF_HUB_OFFLINE"), ConnectionError("offline")),
        lambda: caused(RuntimeError("no data"), OfflineModeIsEnabled("HF_HUB_OFFLINE is set")),
    ],
)
def test_a_permanent_error_is_raised_at_once(error):
    raised = error()

    def fail():
        raise raised

    with pytest.raises(type(raised)):
        retry.retry(fail, "x", QUICK, pause=lambda _: pytest.fail("waited"))
