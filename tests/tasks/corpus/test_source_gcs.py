"""A corpus and its cache are read from a bucket: real clients, a fake store."""

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


_FLAGS = ["--task=ro_mini_span_corruption", "--splits=validation", "--shards=2", "--epochs=2"]
_FLAGS += ["--lengths=inputs=64,targets=14"]
_CACHE = """
import sys
sys.path.insert(0, sys.argv[1])
import json, pathlib
import numpy as np, seqio, tensorflow as tf
import gin
from t5x import batches
from t5x.input_pipeline.config import DatasetConfig
from tasks.cache import cached
from tasks.cache import __main__ as cache

bucket, here, *flags = sys.argv[2:]
one_worker = ["--direct_running_mode", "in_memory", "--direct_num_workers", "1"]
cache.main([*flags, "--out", bucket, *one_worker])
for path in filter(pathlib.Path.is_file, pathlib.Path(here).rglob("*")):
    with tf.io.gfile.GFile(f"{bucket}/{path.relative_to(here)}", "rb") as file:
        assert file.read() == path.read_bytes(), path
gin.bind_parameter("tasks.cache.folders.paths", [bucket])
lengths = {"inputs": 64, "targets": 14}
task = cached.add_pregenerated("ro_mini_span_corruption", lengths)
assert task.cache_dir.startswith("gs://"), task.cache_dir
cfg = DatasetConfig(
    task.name, lengths, "validation", 2, shuffle=True, seed=0, use_cached=True, pack=True
)
start = lambda: batches.TrainStream(cfg, seqio.EncDecFeatureConverter, (0, 2), seed=0)
undisturbed = start()
next(undisturbed)
undisturbed.save(f"{bucket}/position")
wanted = [next(undisturbed) for _ in range(5)]
again = start()
again.restore(f"{bucket}/position")
for batch in wanted:
    for name, value in next(again).items():
        np.testing.assert_array_equal(value, batch[name])
print("SAME")
"""


def test_a_cache_in_a_bucket_equals_one_on_disk_and_trains(gcs, tmp_path):
    here = str(tmp_path / "caches")
    made = subprocess.run(
        [sys.executable, "-m", "tasks.cache", *_FLAGS, "--out", here],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert made.returncode == 0, made.stderr
    gcs.faults = [(".*caches.*validation", fault) for fault in (503, "reset", 429)]
    process = run(_CACHE, gcs, "gs://bucket/caches", here, *_FLAGS)
    out, said = process.communicate(timeout=500)
    assert process.returncode == 0, said
    assert "SAME" in out
    assert not gcs.faults
    reads = [line for line in gcs.log if line.startswith("GET") and "tfrecord" in line]
    assert reads
