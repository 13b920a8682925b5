"""Of a pod of real processes, one asks for the listing of a corpus, and all read one stream."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
import seqio

from fakes import toy
from fakes.loopback import free_port
from fakes.paths import ROOT
from t5x.input_pipeline.stream import TrainStream
from tasks import mixtures, pairs
from tasks.rows import Rows

COLUMNS = {"inputs": "inputs", "targets": "targets"}

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


def pod(program, environments, *arguments):
    """Run a program in two processes, with the pod's address and their numbers; return outputs."""
    address = f"127.0.0.1:{free_port()}"
    env = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "XLA_FLAGS")}
    given = [str(ROOT), str(ROOT / "tests"), address]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, *given, str(i), *arguments],
            env=env | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, more in enumerate(environments)
    ]
    outs = []
    for process in running:
        out, said = process.communicate(timeout=300)
        assert process.returncode == 0, said[-3000:]
        outs.append(out)
    return outs


@pytest.mark.slow
def test_a_pod_lists_a_repository_of_the_hub_once(tmp_path):
    from fakes import loopback_hub

    document = lambda i: json.dumps({"text": f"documentul {i} " * 30}).encode() + b"\n"
    files = {f"train-{i}.jsonl": b"".join(map(document, range(800))) for i in range(8)}
    hubs = [loopback_hub.LoopbackHub({"user/open": files}) for _ in range(2)]  # one a worker
    homes = [str(tmp_path / str(i)) for i in range(2)]
    outs = pod(
        _WORKER,
        [{"HF_ENDPOINT": hub.url, "HF_HOME": home} for hub, home in zip(hubs, homes, strict=True)],
    )
    assert all("ROWS 4" in out for out in outs)
    asked = [[path for _, path, _ in hub.log] for hub in hubs]
    assert any("/tree/" in path for path in asked[0])
    assert not any("/tree/" in path for path in asked[1])
    assert any(path.endswith(".jsonl") for path in asked[1])


# A worker that resumes a mixture whose rates change at step 3, as all of a pod do, and saves.
_MIXED = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2], f"{sys.argv[2]}/t5x/input_pipeline"]
import jax
jax.distributed.initialize(sys.argv[3], 2, int(sys.argv[4]))
from t5x.input_pipeline.corpora import Corpora
from test_stream_processes import mixed_stream, rows_digest
host, corpora, position = jax.process_index(), sys.argv[5], sys.argv[6]
stream = mixed_stream(corpora, (host * 4, host * 4 + 4))
Corpora(stream.cfg).check()
stream.restore(position)
print("DIGEST", rows_digest([next(stream) for _ in range(6)]), flush=True)
jax.distributed.shutdown()
"""


def mixed_stream(folder, rows):
    """Return the stream of the rows of a host, whose mixture has a new language from step 3 on."""
    texts = lambda name: Rows(files={"train": f"{folder}/{name}.jsonl"}, columns=COLUMNS)
    for name in ("others", "georgian"):
        if name not in seqio.TaskRegistry.names():
            pairs.add(name, texts(name), toy.VOCABULARY)
    if "ka_added" not in seqio.MixtureRegistry.names():
        rates = {"others": [(0, 1.0), (3, 0.5)], "georgian": [(0, 0.0), (3, 0.5)]}
        mixtures.add("ka_added", rates)
    cfg = toy.data(mixture_or_task_name="ka_added")
    return TrainStream(cfg, seqio.EncDecFeatureConverter, rows, 0, shards=4)


def rows_digest(batches):
    return hashlib.sha256(b"".join(x.tobytes() for b in batches for x in b.values())).hexdigest()


@pytest.mark.slow
def test_two_processes_go_on_with_the_phases_of_one(tmp_path):
    for name in ("others", "georgian"):
        lines = [json.dumps(dict.fromkeys(COLUMNS, f"{name[0]} {i}")) for i in range(300)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    alone, position = mixed_stream(tmp_path, (0, 8)), str(tmp_path / "position")
    for _ in range(2):
        next(alone)
    alone.save(position)
    wanted = [next(alone) for _ in range(6)]
    of_host = lambda i: [{k: v[4 * i : 4 * i + 4] for k, v in batch.items()} for batch in wanted]
    outs = pod(_MIXED, [{}, {}], str(tmp_path), position)
    for host, out in enumerate(outs):
        assert f"DIGEST {rows_digest(of_host(host))}" in out
