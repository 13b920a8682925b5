"""A corpus and its cache are read from a bucket: real clients, a fake store."""

import gzip
import json
import os
import shutil
import subprocess
import sys

import pytest

from fakes.gcs_emulator import GcsEmulator
from fakes.paths import ROOT

TEXTS = [f"documentul {i} despre râuri și munți" for i in range(1200)]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate"),
]

_READ = """
import sys
sys.path.insert(0, sys.argv[1])
import json
from tasks.corpus.source import CorpusSource

source = CorpusSource(sys.argv[2], splits=["train"])
found = source.get_dataset("train", shuffle=False).as_numpy_iterator()
print("TEXTS" + json.dumps([x["text"].decode() for x in found]))
"""


def run(script, gcs, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, str(ROOT), *arguments],
        env=os.environ | gcs.environment | {"XLA_FLAGS": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def gcs(tmp_path):
    with GcsEmulator("bucket", certificates=tmp_path) as found:
        yield found


def test_a_corpus_in_a_bucket_is_read_through_faults(gcs):
    for i in range(3):
        lines = [json.dumps({"text": t}, ensure_ascii=False) for t in TEXTS[i * 400 :][:400]]
        gcs.put("bucket", f"ro/train-{i}.jsonl", "\n".join(lines).encode())
    gcs.faults = [(f"GET .*train-{i}", fault) for i in (1, 2) for fault in (503, "reset")]
    out, said = (reading := run(_READ, gcs, "gs://bucket/ro")).communicate(timeout=500)
    assert reading.returncode == 0, said
    assert json.loads(out.rpartition("TEXTS")[2]) == TEXTS
    assert not gcs.faults


_REPLACED = """
import sys
sys.path.insert(0, sys.argv[1])
from common.errors import UserError
from tasks.corpus.source import CorpusSource

source = CorpusSource(sys.argv[2], splits=["train"])
source.list_files("train")
print("LISTED", flush=True)
input()
try:
    source.peek("train")
except UserError as error:
    print("REFUSED", error.setting)
"""


def test_a_file_that_is_replaced_after_it_was_listed_is_not_read(gcs):
    gcs.put("bucket", "ro/train.txt.gz", gzip.compress(b"vechi\n"))
    reading = run(_REPLACED, gcs, "gs://bucket/ro")
    assert reading.stdout.readline() == "LISTED\n"
    gcs.put("bucket", "ro/train.txt.gz", gzip.compress(b"nou\n"))
    out, said = reading.communicate("\n", timeout=500)
    assert reading.returncode == 0, said
    assert out == "REFUSED gs://bucket/ro/train.txt.gz\n"


_CACHE = """
import sys
sys.path.insert(0, sys.argv[1])
import pathlib
import tensorflow as tf
import gin
from tasks.cache import __main__ as cache
from tasks.cache import cached

bucket, here = sys.argv[2:]
lengths = {"inputs": 64, "targets": 14}
for out in (here, bucket):
    flags = ["--task=ro_mini_span_corruption", "--splits=validation", "--shards=2", "--epochs=2"]
    flags += ["--lengths=inputs=64,targets=14", f"--out={out}"]
    cache.main([*flags, "--direct_running_mode", "in_memory", "--direct_num_workers", "1"])
for path in filter(pathlib.Path.is_file, pathlib.Path(here).rglob("*")):
    with tf.io.gfile.GFile(f"{bucket}/{path.relative_to(here)}", "rb") as file:
        assert file.read() == path.read_bytes(), path
gin.bind_parameter("tasks.cache.folders.paths", [bucket])
task = cached.add_pregenerated("ro_mini_span_corruption", lengths)
assert task.cache_dir.startswith("gs://"), task.cache_dir
found = task.get_dataset(lengths, "validation", use_cached=True, shuffle=False)
assert len(list(found)) == task.get_cached_stats("validation")["examples"]
print("SAME")
"""


def test_a_cache_in_a_bucket_equals_one_on_disk_and_is_read(gcs, tmp_path):
    gcs.faults = [(".*caches.*validation", fault) for fault in (503, "reset", 429)]
    process = run(_CACHE, gcs, "gs://bucket/caches", str(tmp_path / "caches"))
    out, said = process.communicate(timeout=500)
    assert process.returncode == 0, said
    assert "SAME" in out
    assert not gcs.faults
