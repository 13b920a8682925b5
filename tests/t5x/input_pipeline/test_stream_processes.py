"""Of a pod of real processes, one asks for the listing of a corpus."""

import json
import os
import socket
import subprocess
import sys

import pytest

from fakes.paths import ROOT

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
