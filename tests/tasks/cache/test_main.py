"""The command makes a cache through Beam, once, and refuses impossible jobs."""

import os
import subprocess
import sys

import pytest

from fakes.cache_jobs import files, job, make
from fakes.paths import ROOT
from fakes.refuses import refuses
from tasks.cache import __main__ as cache
from tasks.cache import build
from tasks.cache.plan import CacheJob


@pytest.fixture(scope="module")
def of_tokens(tmp_path_factory):
    made = job(tmp_path_factory.mktemp("tokens"))
    return made, make(made)


def test_beam_makes_the_same(of_tokens, tmp_path):
    pytest.importorskip("apache_beam", reason="the offline cache is made through Apache Beam")
    flags = ["--task", "ro_mini_span_corruption", "--out=o", "--splits=validation", "--shards=4"]
    here = ["--direct_running_mode", "in_memory", "--direct_num_workers", "1"]
    made, others, runner = cache.parse_flags([*flags, *here])
    assert (others, runner) == (here, "")
    assert made == CacheJob("ro_mini_span_corruption", "o", splits=("validation",), shards=4)
    made = job(tmp_path)
    assert cache.make(made, others, runner) == of_tokens[1]
    assert cache.make(made, others, runner) == of_tokens[1], "it already exists"
    assert files(made) == files(of_tokens[0])


def test_the_workers_of_this_machine_need_no_proxy(tmp_path):
    pytest.importorskip("apache_beam", reason="the offline cache is made through Apache Beam")
    flags = ["--task=ro_mini_span_corruption", f"--out={tmp_path}", "--splits=validation"]
    command = [sys.executable, "-m", "tasks.cache", *flags, "--direct_num_workers=1"]
    nowhere = "http://127.0.0.1:9"
    environment = os.environ | {"http_proxy": nowhere, "https_proxy": nowhere}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)


def test_all_flags_are_fields_of_the_job():
    flags = ["--task=t", "--out=o", "--lengths=inputs=8,targets=4", "--epochs=2", "--part_mb=3"]
    flags += ["--module=a", "--module=b", "--gin_bindings=x = 1", "--runner=R", "--zone=z"]
    made, others, runner = cache.parse_flags(flags)
    assert (others, runner) == (["--zone=z"], "R")
    assert made == CacheJob(
        "t",
        "o",
        (("inputs", 8), ("targets", 4)),
        epochs=2,
        part_bytes=3 << 20,
        modules=("a", "b"),
        bindings=("x = 1",),
    )


def test_a_complete_cache_is_not_made_again_and_another_is_refused(of_tokens):
    assert not build.start(of_tokens[0])
    with refuses(of_tokens[0].folder) as refusal:
        build.start(job(of_tokens[0].out, seed=5))
    assert "another seed (0, not 5)" in refusal.value.why
