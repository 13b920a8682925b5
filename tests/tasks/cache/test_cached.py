"""Tasks find their caches in gin's folders, and refuse other lengths."""

import shlex

import pytest
import seqio

from fakes.refuses import refuses
from tasks import mixtures, romanian  # noqa: F401  registers the tasks
from tasks.cache import __main__ as cache
from tasks.cache import cached
from tasks.jobs import classification  # noqa: F401

LENGTHS = {"inputs": 64, "targets": 14}


def test_a_pregenerated_task_is_read_from_its_cache_alone():
    task = cached.add_pregenerated("ro_mini_span_corruption", LENGTHS)
    assert task.name == "ro_mini_span_corruption_i64_t14"
    assert cached.add_pregenerated("ro_mini_span_corruption", LENGTHS) is task
    with pytest.raises(ValueError, match="requires caching"):
        task.get_dataset(LENGTHS, "validation", use_cached=False)


def test_a_task_of_another_has_its_labels_and_prefix():
    task = seqio.TaskRegistry.get("quality_tiny")
    mixtures.add("quality_twice", {"quality_tiny": 1}, epochs={"quality_tiny": 2})
    cached.add_pregenerated("quality_tiny", LENGTHS)
    for name in ("quality_tiny_2_epochs", "quality_tiny_i64_t14"):
        other = seqio.TaskRegistry.get(name)
        assert (other.labels(), other.prefix) == (task.labels(), "quality: ")
        seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove("quality_twice")


def test_a_missing_cache_is_refused_with_the_command_that_makes_it():
    absent = seqio.TaskRegistry.get("ro_mini_span_corruption_i128_t29")
    with refuses(f"task {absent.name}") as refusal:
        absent.get_dataset({"inputs": 128, "targets": 29}, "validation", use_cached=True)
    _, *words = shlex.split(refusal.value.to_set.split("`")[1].partition(" -m ")[2])
    job, others, _ = cache.parse_flags(words)
    assert (job.task, job.modules, others) == ("ro_mini_span_corruption", ("MODULE",), [])
    assert dict(job.lengths) == {"inputs": 128, "targets": 29}
