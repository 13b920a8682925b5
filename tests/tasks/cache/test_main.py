"""The command makes a cache through Beam, once, and refuses impossible jobs."""

import json
import os
import pathlib
import subprocess
import sys
import types

import pytest
import seqio

from fakes.cache_jobs import LENGTHS, files, global_caches, job, make
from fakes.paths import ROOT
from fakes.refuses import refuses
from tasks import corpora
from tasks.cache import __main__ as cache
from tasks.cache import build, cached, plan
from tasks.cache.plan import CacheJob
from tasks.corpus.source import CorpusSource
from tasks.objectives.prefix_lm import PrefixLM
from tasks.objectives.span_corruption import SpanNoise
from tasks.task import cached_settings


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


@pytest.fixture
def small(tmp_path):
    """Make a job anew, as another process does, whose corpus and vocabulary may have changed."""
    corpus, model = tmp_path / "corpus.txt", tmp_path / "small.model"
    corpus.write_text("un text\n" * 99)
    model.write_bytes((ROOT / "data/ro_mini/ro_mini.model").read_bytes())

    def made_anew(**settings) -> CacheJob:
        seqio.TaskRegistry.remove("cache_small")
        source = CorpusSource(files={"train": str(corpus)})
        corpora.add("cache_small", source, str(model), **settings)
        plan.task_of.cache_clear()
        return CacheJob("cache_small", str(tmp_path / "caches"), splits=("train",))

    yield types.SimpleNamespace(corpus=corpus, model=model, job=made_anew)
    seqio.TaskRegistry.remove("cache_small")
    plan.task_of.cache_clear()


@pytest.mark.parametrize("changed", ["contents", "vocabularies"])
@pytest.mark.parametrize("complete", [False, True])
def test_a_corpus_or_vocabulary_that_has_changed_is_refused(small, changed, complete):
    """Both keep their paths; an old cache would have ids of another vocabulary."""
    made = small.job()
    assert build.start(made)
    assert build.start(small.job()), "nothing has changed"
    if complete:
        build.write_json(made, f"{made.folder}/COMPLETED", {})
        assert not build.start(small.job())
    if changed == "contents":
        small.corpus.write_text("alt text\n" * 88)
    else:
        small.model.write_bytes((ROOT / "data/ro_simple/ro_simple.model").read_bytes())
    with refuses(made.folder) as refusal:
        build.start(small.job())
    assert f"another {changed} (" in refusal.value.why


@pytest.mark.parametrize("says", ["its vocabulary", "nothing"])
def test_training_does_not_read_the_ids_of_another_vocabulary(small, says):
    """The cache is complete, and the vocabulary is trained again before the run."""
    made = small.job()
    make(made)
    read = lambda: seqio.TaskRegistry.get(made.task).get_dataset(LENGTHS, use_cached=True)
    with global_caches([made.out]):
        assert next(iter(read()))
        small.model.write_bytes((ROOT / "data/ro_simple/ro_simple.model").read_bytes())
        small.job()
        if says == "nothing":  # as of a cache that seqio has made
            pathlib.Path(made.folder, "job.json").unlink()
            assert next(iter(read()))
        else:
            with refuses("task cache_small") as refusal:
                read()
            assert "another vocabulary" in refusal.value.why


def test_training_does_not_read_texts_that_were_normalized_otherwise(small):
    made = small.job(cedilla=True)
    make(made)
    lengths = {"inputs": 64, "targets": 64}
    read = lambda: seqio.TaskRegistry.get(made.task).get_dataset(lengths, use_cached=True)
    with global_caches([made.out]):
        small.job(cedilla=True, nfc=True, objective=SpanNoise(0.5, 3.0))
        assert next(iter(read())), "a default may be written, and tokens suit any objective"
        small.job(cedilla=False)
        with refuses("task cache_small") as refusal:
            read()
    assert "cedilla" in refusal.value.why


def test_finished_examples_have_the_settings_of_their_objective(small):
    name = cached.pregenerated_name("cache_small", LENGTHS)
    settings = []
    for objective in (SpanNoise(0.15, 3.0), SpanNoise(0.5, 3.0), SpanNoise(0.15, 3.0), PrefixLM()):
        small.job(objective=objective)
        settings.append(cached_settings(cached.add_pregenerated("cache_small", LENGTHS)))
        seqio.TaskRegistry.remove(name)
    assert settings[0] == settings[2]
    for other in (settings[1], settings[3]):
        assert any(other[key] != value for key, value in settings[0].items() if key in other)


def test_a_cache_that_does_not_say_what_its_corpus_holds_is_taken(small):
    made = small.job()
    assert build.start(made)
    path = pathlib.Path(made.folder, "job.json")
    about = json.loads(path.read_text())
    path.write_text(json.dumps({k: about[k] for k in about.keys() - {"contents", "vocabularies"}}))
    small.corpus.write_text("alt text\n" * 88)
    assert build.start(small.job())
