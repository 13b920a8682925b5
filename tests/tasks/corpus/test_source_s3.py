"""A corpus in an S3 bucket, read by real clients from a fake store (moto)."""

import os
import subprocess

import pytest

from fakes.optional_env import optional_python
from fakes.paths import ROOT

pytestmark = pytest.mark.slow

PROGRAM = """
import gzip, json, os
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0)
server.start()
host, port = server.get_host_and_port()
os.environ["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
import fsspec
from tasks.corpus.source import CorpusSource

texts = [f"documentul {i} despre râuri și munți" for i in range(300)]
store = fsspec.filesystem("s3")
store.mkdir("bucket")
for k in range(3):
    lines = "".join(json.dumps({"text": text}) + "\\n" for text in texts[k::3])
    name = f"bucket/corpus/train-{k}.jsonl" + (".gz" if k == 2 else "")
    store.pipe_file(name, gzip.compress(lines.encode()) if k == 2 else lines.encode())
store.pipe_file("bucket/corpus/validation.jsonl", b'{"text": "unu"}\\n')
store.pipe_file("bucket/list.map", b"corpus/train-0.jsonl\\n")

def read(source, split="train", shuffle=False):
    found = source.get_dataset(split, shuffle=shuffle).as_numpy_iterator()
    return [example["text"].decode() for example in found]

pattern = CorpusSource(files={"train": "s3://bucket/corpus/train-*"}, held_out={})
assert sorted(read(pattern)) == sorted(texts)
assert sorted(read(pattern, shuffle=True)) == sorted(texts) != read(pattern, shuffle=True)
folder = CorpusSource("s3://bucket/corpus", splits=["train", "validation"])
assert sorted(read(folder)) == sorted(texts)
assert read(folder, "validation") == ["unu"]
listed = CorpusSource(files={"train": "@s3://bucket/list.map"}, held_out={})
assert read(listed) == texts[0::3]

before = pattern.identity("train")["contents"]
data = store.cat_file("bucket/corpus/train-0.jsonl")
store.pipe_file("bucket/corpus/train-0.jsonl", data.replace(b"documentul 0 ", b"documentul 9 "))
store.invalidate_cache()
again = CorpusSource(files={"train": "s3://bucket/corpus/train-*"}, held_out={})
versions = [[f.version for f in s.list_files("train")] for s in (pattern, again)]
assert again.identity("train")["contents"] != before
assert versions[0][0] != versions[1][0] and versions[0][1:] == versions[1][1:] and versions[0][0]

server.stop()
"""


def test_a_corpus_in_a_bucket_is_read_and_listed():
    keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    done = subprocess.run(
        [optional_python(), "-c", PROGRAM],
        cwd=ROOT,
        env=os.environ | keys | {"PYTHONPATH": str(ROOT), "AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
