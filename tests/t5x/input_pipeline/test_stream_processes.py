"""Hosts as real processes: however many, and however that changes, the batches are the same."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from fakes.paths import ROOT

BATCH = 8

# A host of its own: restores, takes batches, saves.
_HOST = """
import sys
sys.path[:0] = sys.argv[1:3]
import numpy as np, seqio
from t5x.input_pipeline.stream import TrainStream
from t5x.input_pipeline.config import DatasetConfig
import tasks.romanian

host, hosts, shards, count, before, after, out = sys.argv[3:]
size = 8 // int(hosts)
rows = (int(host) * size, int(host) * size + size)
cfg = DatasetConfig(
    "ro_mini_span_corruption", {"inputs": 64, "targets": 64}, "train", 8, True, 0, pack=True
)
converter, shards = seqio.EncDecFeatureConverter, int(shards) or None
stream = TrainStream(cfg, converter, rows, seed=0, shards=shards)
if before:
    stream.restore(before)
taken = [next(stream) for _ in range(int(count))]
if after:
    stream.save(after)
np.savez(out, **{f"{i}/{k}": v for i, b in enumerate(taken) for k, v in b.items()})
"""


def take(folder, hosts, count, before="", after="", shards=0):
    """Global batches, put together from what each of the processes took."""
    outs = [str(folder / f"{hosts}-{i}-{bool(before)}{bool(after)}.npz") for i in range(hosts)]
    places = [str(folder / p) if p else "" for p in (before, after)]
    running = []
    for i, out in enumerate(outs):
        arguments = [str(ROOT), str(ROOT / "tests"), str(i), str(hosts), str(shards), str(count)]
        with open(f"{out}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _HOST, *arguments, *places, out],
                env=os.environ | {"XLA_FLAGS": ""},
                stderr=log,
            )
        running.append(process)
    for process, out in zip(running, outs, strict=True):
        assert process.wait(timeout=900) == 0, pathlib.Path(f"{out}.log").read_text()[-2000:]
    parts = [dict(np.load(out)) for out in outs]
    return {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}


def assert_same(found, wanted, skip=0):
    assert found
    for name, value in found.items():
        step, feature = name.split("/")
        np.testing.assert_array_equal(value, wanted[f"{int(step) + skip}/{feature}"])


@pytest.mark.slow
def test_one_to_eight_processes_make_the_same_batches_and_take_over_from_each_other(tmp_path):
    wanted = take(tmp_path, 1, 40)
    assert_same(take(tmp_path, 2, 10, after="two"), wanted)
    assert_same(take(tmp_path, 4, 10, before="two", after="four"), wanted, skip=10)
    assert_same(take(tmp_path, 8, 10, before="four", after="eight"), wanted, skip=20)
    assert_same(take(tmp_path, 1, 10, before="eight"), wanted, skip=30)


@pytest.mark.slow
def test_processes_that_share_a_shard_make_the_batches_of_one(tmp_path):
    wanted = take(tmp_path, 1, 30, shards=2)
    assert_same(take(tmp_path, 4, 10, after="four", shards=2), wanted)
    assert_same(take(tmp_path, 8, 10, before="four", after="eight"), wanted, skip=10)
    assert_same(take(tmp_path, 1, 10, before="eight"), wanted, skip=20)


# A worker of a pod: all of them need a corpus of the hub.
_WORKER = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import jax
jax.distributed.initialize(sys.argv[3], 2, int(sys.argv[4]))
import seqio
from t5x.input_pipeline.stream import TrainStream
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.corpora import Corpora
from tasks import corpora, vocabularies
from tasks.corpus.source import CorpusSource

source = CorpusSource("user/open", splits=["train"])
corpora.add("of_the_hub", source, vocabularies.ro_mini_model)
lengths = {"inputs": 64, "targets": 64}
cfg = DatasetConfig("of_the_hub", lengths, "train", 8, True, 0, pack=True)
Corpora(cfg).check()
host = jax.process_index()
stream = TrainStream(cfg, seqio.EncDecFeatureConverter, (host * 4, host * 4 + 4), seed=0)
print("ROWS", len(next(stream)["encoder_input_tokens"]), flush=True)
jax.distributed.shutdown()
"""


@pytest.mark.slow
def test_a_pod_lists_a_repository_of_the_hub_once(tmp_path):
    from fakes import loopback_hub

    document = lambda i: json.dumps({"text": f"documentul {i} " * 30}).encode() + b"\n"
    files = {f"train-{i}.jsonl": b"".join(map(document, range(800))) for i in range(8)}
    hubs = [loopback_hub.LoopbackHub({"user/open": files}) for _ in range(2)]  # one a worker
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "XLA_FLAGS")}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(ROOT), str(ROOT / "tests"), address, str(i)],
            env=env | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / str(i))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, hub in enumerate(hubs)
    ]
    for process in running:
        out, said = process.communicate(timeout=300)
        assert "ROWS 4" in out, said[-3000:]
    asked = [[path for _, path, _ in hub.log] for hub in hubs]
    assert any("/tree/" in path for path in asked[0])
    assert not any("/tree/" in path for path in asked[1])
    assert any(path.endswith(".jsonl") for path in asked[1])
