"""A fake of the hub's model repositories on loopback, for uploads and downloads.

with HubStandIn() as hub:
    subprocess.run(command, env=os.environ | hub.environment(home))
hub.files                                        # {"model.safetensors": b"…", …} of user/name
"""

import base64
import json

from fakes import loopback

COMMIT = "0" * 40


class _Handler(loopback.Handler):
    fake: "HubStandIn"

    def _answer(self, content, status=200):
        self.reply(status, json.dumps(content).encode())

    def do_GET(self):
        path = self.path.split("?")[0].strip("/")
        self.fake.log.append(f"{self.command} {path}")
        name = path.split("/", 4)[-1]  # after user/name/resolve/<revision>
        if path == "api/whoami-v2":
            self._who_am_i()
        elif not (self.fake.files or self.fake.made) or "user/name" not in path:
            self.reply(404, headers={"X-Error-Code": "RepoNotFound"})
        elif path in [f"api/models/user/name/tree/{name}" for name in ("main", COMMIT)]:
            entry = {"type": "file", "oid": COMMIT}
            files = self.fake.files.items()
            self._answer([entry | {"path": file, "size": len(data)} for file, data in files])
        elif path.startswith("api/models/user/name/tree"):
            self.reply(404, headers={"X-Error-Code": "EntryNotFound"})
        elif path.startswith("api/models/user/name"):
            siblings = [{"rfilename": file} for file in self.fake.files]
            self._answer({"id": "user/name", "sha": COMMIT, "siblings": siblings, "tags": []})
        elif name not in self.fake.files:
            headers = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
            self.reply(404, headers=headers)
        else:
            headers = {"ETag": f'"{name.replace("/", "-")}"', "X-Repo-Commit": COMMIT}
            self.reply(200, self.fake.files[name], headers)

    do_HEAD = do_GET

    def _who_am_i(self):
        if self.headers["Authorization"] != "Bearer hf_secret":
            self._answer({"error": "Invalid credentials"}, 401)
            return
        token = {"displayName": "mine", "role": self.fake.role}
        self._answer({"name": "user", "auth": {"type": "access_token", "accessToken": token}})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        hub = self.fake
        hub.tokens.add(self.headers["Authorization"])
        if hub.refuse:
            self._answer({"error": "no right to write"}, 403)
        elif self.path == "/api/repos/create":
            hub.made.append(json.loads(body))
            self._answer({"url": f"{hub.url}/user/name"})
        elif self.path.endswith("/preupload/main"):
            names = [file["path"] for file in json.loads(body)["files"]]
            large = lambda name: name.endswith((".safetensors", ".msgpack"))
            modes = [
                {"path": n, "uploadMode": "lfs" if large(n) else "regular", "shouldIgnore": False}
                for n in names
            ]
            self._answer({"files": modes})
        elif self.path.endswith("/objects/batch"):
            upload = lambda oid: {"upload": {"href": f"{hub.url}/lfs/{oid}"}}
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
                self.fake.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.fake.files[value["path"]] = self.fake.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del self.fake.files[value["path"]]
        url = f"{self.fake.url}/user/name/commit/{COMMIT}"
        self._answer({"commitUrl": url, "commitOid": COMMIT})

    def do_PUT(self):
        oid = self.path.rsplit("/", 1)[1]
        self.fake.blobs[oid] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({})


class HubStandIn(loopback.Server):
    """One repository, user/name; `refuse` answers every upload with 403, `role` is the token's."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.made: list[dict] = []
        self.tokens: set[str] = set()
        self.refuse = False
        self.role = "write"
        self.log: list[str] = []
        super().__init__(_Handler)

    def environment(self, home) -> dict[str, str]:
        """Return the variables that send the hub's clients here; `home` is their cache."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",  # the stand-in speaks the older way of large files
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HOME": str(home),
            "HF_TOKEN": "hf_secret",
        }
