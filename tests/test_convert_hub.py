"""Uploading, against a stand-in for the hub on this machine."""

import base64
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from convert import hub, output

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "t5_1_1"
COMMIT = "0" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """The calls that an upload makes; `server.files` collects what arrived."""

    def _answer(self, content, status=200):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _address(self, path):
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tokens.add(self.headers["Authorization"])
        if self.server.refuse:
            self._answer({"error": "no right to write"}, 403)
        elif self.path == "/api/repos/create":
            self.server.made.append(json.loads(body))
            self._answer({"url": self._address("/user/name")})
        elif self.path.endswith("/preupload/main"):
            names = [file["path"] for file in json.loads(body)["files"]]
            large = lambda name: name.endswith((".safetensors", ".msgpack"))
            modes = [
                {"path": n, "uploadMode": "lfs" if large(n) else "regular", "shouldIgnore": False}
                for n in names
            ]
            self._answer({"files": modes})
        elif self.path.endswith("/objects/batch"):
            upload = lambda oid: {"upload": {"href": self._address(f"/lfs/{oid}")}}
            objects = [{**o, "actions": upload(o["oid"])} for o in json.loads(body)["objects"]]
            self._answer({"transfer": "basic", "objects": objects})
        elif self.path.endswith("/commit/main"):
            self._commit([json.loads(line) for line in body.splitlines()])
        else:
            self._answer({})

    def _commit(self, lines):
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.server.files[value["path"]] = self.server.blobs[value["oid"]]
        url = self._address(f"/user/name/commit/{COMMIT}")
        self._answer({"commitUrl": url, "commitOid": COMMIT})

    def do_PUT(self):
        oid = self.path.rsplit("/", 1)[1]
        self.server.blobs[oid] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({})

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    found.files, found.blobs, found.made = {}, {}, []
    found.tokens, found.refuse = set(), False
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "run" / "checkpoint_25"
    shutil.copytree(GOLDEN / "legacy" / "checkpoint_25", folder)
    return folder


def publish(server, checkpoint, **environment):
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",  # the stand-in speaks the older way of large files
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HOME": str(checkpoint.parent / "home"),
        "PYTHONPATH": str(ROOT),
        "HF_TOKEN": "hf_secret",
    }
    flags = ["--vocabulary", "none", "--no_verify", "--push_to_hub", "user/name"]
    flags += ["--config", str(GOLDEN / "config.json")]
    return subprocess.run(
        [sys.executable, "-m", "convert", str(checkpoint), *flags],
        env=os.environ | settings | environment,
        capture_output=True,
        text=True,
    )


def test_one_command_converts_and_publishes(server, checkpoint):
    done = publish(server, checkpoint)
    assert done.returncode == 0, done.stderr
    assert f"127.0.0.1:{server.server_port}/user/name" in done.stdout
    folder = checkpoint.parent.parent / "run_hf" / "checkpoint_25"
    assert server.files == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert server.made[0]["name"] == "name"
    assert server.tokens == {"Bearer hf_secret"}


def test_no_right_to_write_is_one_sentence_and_the_conversion_stays(server, checkpoint):
    server.refuse = True
    done = publish(server, checkpoint)
    assert done.returncode == 1
    assert "is converted, but the hub did not take user/name" in done.stderr
    assert "Traceback" not in done.stderr
    assert (checkpoint.parent.parent / "run_hf" / "checkpoint_25").is_dir()


def test_without_a_token_or_a_conversion_nothing_is_sent(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="not a finished conversion"):
        hub.push(tmp_path, "user/name", token="hf_secret")
    output.write_record(tmp_path, {"steps": [1]})
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ValueError, match="set HF_TOKEN"):
        hub.push(tmp_path, "user/name")
