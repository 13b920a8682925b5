"""One sentence names the worker that is gone, from what JAX's coordination service writes."""

import datetime

import pytest

from t5x.multihost import lost_workers

NOW = datetime.datetime(2026, 3, 1, 12, 0, 40)
FATAL = (
    "F0301 12:00:40.077775   13074 client.h:80] Terminating process because the JAX distributed "
    "service detected fatal errors. This most likely indicates that another task died; see the "
    "other task logs for more details. absl::Status: UNAVAILABLE: "
)
SILENT = (
    "The following tasks are unhealthy (stopped sending heartbeats):\n{}\nThe tasks have crashed."
)
LEADER = (
    "Failed to send RPC to coordination service. Either the leader task was preempted/died/"
    "restarted unexpectedly or this task is experiencing network issues."
)
TASKS = "/job:jax_worker/replica:0/task:{}"
END = "then start the same command on all workers, which resumes from the last checkpoint."


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (FATAL + SILENT.format(2), "Worker 2 is gone since 2026-03-01 12:00:10; "),
        (FATAL + SILENT.format(TASKS.format(2)), "Worker 2 is gone since 2026-03-01 12:00:10; "),
        (FATAL + SILENT.format("3\n12"), "Workers 3, 12 are gone since 2026-03-01 12:00:10; "),
        (
            FATAL + SILENT.format(", ".join(map(TASKS.format, (12, 3)))),
            "Workers 3, 12 are gone since 2026-03-01 12:00:10; ",
        ),
        (FATAL + LEADER, "Worker 0 is gone since 2026-03-01 12:00:40; "),
        (
            f"Traceback\n{lost_workers.note(NOW.replace(second=7))}\n{FATAL}"
            + SILENT.format(TASKS.format(2)),
            "Worker 2 is gone since 2026-03-01 12:00:07; ",
        ),
    ],
)
def test_the_worker_and_the_time_are_named(log, expected):
    said = lost_workers.sentence(log, NOW, 30, "gs://bucket/run/log_1.txt")
    first = expected.split()[1].strip(",")
    assert said.startswith(expected)
    assert f"find out why in gs://bucket/run/log_{first}.txt" in said
    assert f"with bash launch/tpu_logs.sh NAME ZONE {first}, " in said
    assert said.endswith(END)
    assert "\n" not in said


def test_without_a_common_folder_the_script_shows_the_log():
    said = lost_workers.sentence(FATAL + LEADER, NOW, 30, None)
    assert "find out why with bash launch/tpu_logs.sh NAME ZONE 0, then" in said


@pytest.mark.parametrize("log", ["", "Check failed: a == b", TASKS.format(1)])
def test_another_crash_is_not_explained(log):
    assert lost_workers.sentence(log, NOW, 30, "runs/x/log_1.txt") is None


class JaxRuntimeError(RuntimeError):
    """Named as JAX's."""


@pytest.mark.parametrize(
    ("error", "may_be"),
    [
        (JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: Connection reset by peer"), True),
        (JaxRuntimeError("UNAVAILABLE: Socket closed"), True),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), False),
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer"), True),
        (RuntimeError("Gloo all-reduce failed"), False),
        (SystemExit(1), False),
    ],
)
def test_an_exception_may_come_from_another_workers_end(error, may_be):
    assert lost_workers.may_be_loss(error) is may_be


def test_the_cause_of_an_exception_may_come_from_another_workers_end():
    loss = JaxRuntimeError("UNAVAILABLE: Failed to send RPC to coordination service.")
    timeout = TimeoutError("Timed out while waiting for a barrier.")
    failed = RuntimeError("checkpoint_20 could not be written")
    timeout.__cause__, failed.__cause__ = loss, timeout
    assert lost_workers.may_be_loss(failed)
    timeout.__cause__ = None
    assert not lost_workers.may_be_loss(failed)


def test_a_loss_without_a_name_is_a_sentence_too():
    reason = "UNKNOWN: Gloo all-reduce failed\n  In call to configurable"
    said = lost_workers.unnamed(reason, "/runs/x/log_1.txt")
    assert said.startswith("Another worker is gone or cannot be reached (UNKNOWN: Gloo all-reduce ")
    assert "at the end of /runs/x/log_*.txt (bash launch/tpu_status.sh NAME ZONE" in said
    assert said.endswith(END)
    assert "at the end of each worker's log (" in lost_workers.unnamed(reason, None)
    log = f"{FATAL}ABORTED: a barrier has failed\n"
    said = lost_workers.sentence(log.replace("UNAVAILABLE: ", ""), NOW, 30, None)
    assert said.startswith(
        "Another worker is gone or cannot be reached (ABORTED: a barrier has failed)"
    )
