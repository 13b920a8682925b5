"""A bucket takes copies and caches of a corpus and gives them back: real clients, a fake store."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from fakes.file_server import FileServer
from fakes.gcs_emulator import GcsEmulator
from fakes.paths import ROOT

TEXTS = [f"documentul {i} despre râuri și munți" for i in range(1200)]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate"),
]

# `python -m tasks.mirror`, but that a file is fetched in several pieces.
_MIRROR = """
import sys
sys.path.insert(0, sys.argv[1])
from tasks import mirror
mirror.CHUNK_BYTES = 8192
"""
_KILLED = f"{_MIRROR}sys.exit(mirror.main(sys.argv[2:]))"
_RESUMED = f"""{_MIRROR}
import json
import tensorflow as tf
from tasks.sources import CorpusSource

copy, refused, *files = sys.argv[2:]
assert mirror.main(["--to", copy, *files]) == 0
assert mirror.main(["--to", copy, *files, "--check"]) == 0
victim = copy + "/train-00002-of-00003.jsonl"
with tf.io.gfile.GFile(victim, "rb") as file:
    data = file.read()
with tf.io.gfile.GFile(victim, "wb") as file:
    file.write(data.replace(b"documentul 900", b"documentul 901"))
assert mirror.main(["--to", copy, *files, "--check"]) == 1
assert mirror.main(["--to", copy, *files]) == 0
assert mirror.main(["--to", copy, *files, "--check"]) == 0
print("REFUSED", mirror.main(["--to", refused, *files]), flush=True)
source = CorpusSource(copy, splits=["train"])
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


def test_a_copy_in_a_bucket_outlives_a_kill_and_faults_and_is_read_from_there(gcs, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    for i in range(3):
        lines = [json.dumps({"text": t}, ensure_ascii=False) for t in TEXTS[i * 400 :][:400]]
        (served / f"{i}.jsonl").write_text("\n".join(lines) + "\n")
    size = sum(path.stat().st_size for path in served.iterdir())
    with FileServer(served) as server:
        files = [f"--files=train={server.url}/{i}.jsonl" for i in range(3)]
        gcs.faults = [("POST .*train-00001", 503)] * 100
        first = run(_KILLED, gcs, "--to=gs://bucket/ro", "--workers=1", *files)
        noted = lambda: gcs.objects.get(("bucket", "ro/mirror.json"), (0, b""))[1]
        while len(gcs.faults) == 100 or b"train-00000" not in noted():
            assert first.poll() is None, first.communicate()
            time.sleep(0.02)
        first.kill()
        first.communicate()
        assert ("bucket", "ro/train-00000-of-00003.jsonl") in gcs.objects
        assert ("bucket", "ro/train-00001-of-00003.jsonl") not in gcs.objects
        before = server.sent.copy()
        gcs.sessions.clear()
        gcs.faults = [(f".*train-0000{i}", fault) for i in (1, 2) for fault in (503, "reset")]
        gcs.faults += [("POST .*refused.*train", 403)] * 100
        second = run(_RESUMED, gcs, "gs://bucket/ro", "gs://bucket/refused", *files)
        out, said = second.communicate(timeout=500)
    assert second.returncode == 0, said
    assert json.loads(out.rpartition("TEXTS")[2]) == TEXTS
    assert "train-00002-of-00003.jsonl is missing or damaged" in said
    assert "REFUSED 2" in out
    (refused,) = [line for line in said.splitlines() if line.startswith("Error: ")]
    assert "403" in refused
    # Fetched: what was missing, what was damaged, and what the other bucket then refuses.
    fetched = {name: n - before[name] for name, n in server.sent.items()}
    times = {"/0.jsonl": 1, "/1.jsonl": 2, "/2.jsonl": 3}
    for name, most in times.items():
        assert fetched[name] <= most * (served / name[1:]).stat().st_size + 3, name
    sent = [s["data"] for s in gcs.sessions.values() if s["name"].endswith(".part")]
    assert sum(map(len, sent)) <= 1.3 * size  # no file again with every piece of it


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
from tasks import caches
from tasks.cache import __main__ as cache

bucket, here, *flags = sys.argv[2:]
one_worker = ["--direct_running_mode", "in_memory", "--direct_num_workers", "1"]
cache.main([*flags, "--out", bucket, *one_worker])
for path in filter(pathlib.Path.is_file, pathlib.Path(here).rglob("*")):
    with tf.io.gfile.GFile(f"{bucket}/{path.relative_to(here)}", "rb") as file:
        assert file.read() == path.read_bytes(), path
gin.bind_parameter("tasks.caches.folders.paths", [bucket])
lengths = {"inputs": 64, "targets": 14}
task = caches.add_pregenerated("ro_mini_span_corruption", lengths)
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
