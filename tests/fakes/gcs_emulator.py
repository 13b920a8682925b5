"""A Google Cloud Storage emulator on loopback: the JSON API, with objects in memory.

    with GcsEmulator("bucket") as gcs:
        gcs.put_folder("bucket", "run/checkpoint_25", local_folder)
        subprocess.run(command, env=os.environ | gcs.environment)   # reads gs://bucket/run/…
    gcs.log                                                         # ["GET /storage/v1/b/…", …]

Serves tensorstore, gcsfs (and epath without TensorFlow) and google-cloud-storage:
list, read (ranges too), upload (media, multipart, resumable), rewrite, move, delete, batches of
deletes. TensorFlow's own gs:// has its address compiled in. For it the emulator, given a folder
for its certificate, is also the HTTPS proxy for Google's hosts and terminates TLS itself.

`faults` are pairs of a regular expression and the outcome of the next request that it matches: a
status, "reset" of the connection, or "slow", an answer after two seconds.
"""

import base64
import email
import hashlib
import itertools
import json
import re
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.parse
from pathlib import Path

from fakes import loopback

_OBJECT = re.compile(r"/(?:download/)?storage/v1/b/([^/]+)/o/(.+)")
_LIST = re.compile(r"/storage/v1/b/([^/]+)/o/?")
_BUCKET = re.compile(r"/storage/v1/b/([^/]+)/?")
_XML = re.compile(r"/([^/]+)/(.+)")
_UPLOAD = re.compile(r"/(?:resumable/)?upload/storage/v1/b/([^/]+)/o/?")


class Refused(Exception):
    """A request that ends with an error status."""


class GcsEmulator(loopback.Server):
    """The service; `objects` maps (bucket, name) to (generation, bytes).

    Args:
      buckets: names of the buckets.
      certificates: a folder in which openssl creates a certificate for Google's hosts; None to
        serve all clients but TensorFlow.
    """

    def __init__(self, *buckets: str, certificates: Path | None = None):
        self.buckets, self.certificates = set(buckets), certificates
        self.objects: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.sessions: dict[str, dict] = {}
        self.faults: list[tuple[str, int | str]] = []
        self.tls = self._certify() if certificates else None
        self.log: list[str] = []
        self.lock = threading.RLock()
        self._generations = itertools.count(1)
        super().__init__(_Handler)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that send the clients here."""
        clients = {
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "STORAGE_EMULATOR_HOST": self.url,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "any",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }
        if not self.tls:
            return {**clients, "EPATH_USE_TF": "false"}
        certificate = str(self.certificates / "certificate.pem")
        return {
            **clients,
            "https_proxy": self.url,
            "CURL_CA_BUNDLE": certificate,
            "NO_GCE_CHECK": "true",
        }

    def _certify(self) -> ssl.SSLContext:
        key, certificate = (str(self.certificates / f"{n}.pem") for n in ("key", "certificate"))
        names = "subjectAltName=DNS:*.googleapis.com,DNS:googleapis.com"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        command += ["-keyout", key, "-out", certificate, "-subj", "/CN=emulator", "-addext", names]
        subprocess.run(command, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    def put(self, bucket: str, name: str, data: bytes, query: dict[str, str] | None = None) -> dict:
        """Store an object and return its description."""
        with self.lock:
            self.check(bucket, name, query or {})
            self.objects[bucket, name] = (next(self._generations), data)
            return self.describe(bucket, name)

    def put_folder(self, bucket: str, prefix: str, folder: Path) -> None:
        """Store the files below a folder."""
        for path in Path(folder).rglob("*"):
            if path.is_file():
                self.put(bucket, f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def take_folder(self, bucket: str, prefix: str, folder: Path) -> None:
        """Write the objects below a prefix to files, as `gcloud storage cp -r` would."""
        for owner, name in sorted(self.objects):
            if owner == bucket and name.startswith(f"{prefix}/") and not name.endswith("/"):
                path = folder / name.removeprefix(f"{prefix}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.objects[owner, name][1])

    def get(self, bucket: str, name: str) -> tuple[int, bytes]:
        """Return generation and bytes, or raise 404."""
        if (bucket, name) not in self.objects:
            raise Refused(404)
        return self.objects[bucket, name]

    def check(self, bucket: str, name: str, query: dict[str, str], refusal: int = 412) -> None:
        """Reject a request whose generation does not match."""
        generation = self.objects.get((bucket, name), (0, b""))[0]
        if bucket not in self.buckets:
            raise Refused(404)
        if query.get("ifGenerationMatch", str(generation)) != str(generation):
            raise Refused(412)
        if query.get("ifGenerationNotMatch") == str(generation):
            raise Refused(refusal)

    def describe(self, bucket: str, name: str) -> dict:
        """Return an object's resource."""
        generation, data = self.get(bucket, name)
        quoted = urllib.parse.quote(name, safe="")
        return {
            "kind": "storage#object",
            "id": f"{bucket}/{name}/{generation}",
            "bucket": bucket,
            "name": name,
            "size": str(len(data)),
            "generation": str(generation),
            "metageneration": "1",
            "contentType": "application/octet-stream",
            "storageClass": "STANDARD",
            "etag": str(generation),
            "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
            "timeCreated": "2026-01-01T00:00:00.000Z",
            "updated": "2026-01-01T00:00:00.000Z",
            "selfLink": f"{self.url}/storage/v1/b/{bucket}/o/{quoted}",
            "mediaLink": f"{self.url}/download/storage/v1/b/{bucket}/o/{quoted}?alt=media",
        }

    def list(self, bucket: str, query: dict[str, str]) -> dict:
        """Return a page of a bucket's objects and, with a delimiter, of the folders among them."""
        if bucket not in self.buckets:
            raise Refused(404)
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        after = max(query.get("pageToken", ""), query.get("startOffset", ""))
        most, keys, last = int(query.get("maxResults", 1000)), {}, ""
        for owner, name in sorted(self.objects):
            if owner != bucket or not name.startswith(prefix) or name < after:
                continue
            if name >= query.get("endOffset", name + "/"):
                continue
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            key = name if cut < 0 else name[: cut + len(delimiter)]
            if len(keys) == most and key not in keys:
                last = name
                break
            keys[key] = cut < 0
        page = {"kind": "storage#objects", "nextPageToken": last} if last else {}
        page["items"] = [
            self.describe(bucket, name) for name, is_object in keys.items() if is_object
        ]
        page["prefixes"] = [name for name, is_object in keys.items() if not is_object]
        return page

    def delete(self, bucket: str, name: str, query: dict[str, str]) -> None:
        """Remove an object."""
        with self.lock:
            self.get(bucket, name)
            self.check(bucket, name, query)
            del self.objects[bucket, name]


class _Handler(loopback.Handler):
    fake: GcsEmulator
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _answer(self):
        data = self._body()
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        line = f"{self.command} {urllib.parse.unquote(self.path)}"
        self.fake.log.append(line)
        try:
            fault = next((f for f in self.fake.faults if re.search(f[0], line)), None)
            if fault:
                self.fake.faults.remove(fault)
                if fault[1] == "reset":
                    self._reset()
                    return
                if fault[1] != "slow":
                    raise Refused(fault[1])
                time.sleep(2.0)
            self._route(url.path, query, data)
        except Refused as refusal:
            (status,) = refusal.args
            content = {"error": {"code": status, "message": "refused"}}
            self.reply(status, b"" if status == 304 else json.dumps(content).encode())

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer

    def do_CONNECT(self):
        """Act as the server of a TLS connection to one of Google's hosts."""
        if not self.fake.tls or not self.path.split(":")[0].endswith("googleapis.com"):
            self.reply(403)
            return
        self.send_response(200)
        self.end_headers()
        self.connection = self.fake.tls.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.close_connection = False

    def finish(self):
        """Close the TLS connection of `do_CONNECT`, which only this handler holds."""
        super().finish()
        self.connection.close()

    def _reset(self) -> None:
        at_once = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.connection.close()
        self.close_connection = True

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while length := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _route(self, path: str, query: dict[str, str], data: bytes) -> None:
        gcs = self.fake
        if path.startswith("/batch"):
            self._batch(data)
        elif match := _UPLOAD.fullmatch(path):
            self._upload(match[1], query, data)
        elif match := _LIST.fullmatch(path):
            self._send_json(gcs.list(match[1], query))
        elif match := _OBJECT.fullmatch(path):
            self._object(match[1], match[2], query, path.startswith("/download"))
        elif (match := _BUCKET.fullmatch(path)) and match[1] in gcs.buckets:
            self._send_json({"kind": "storage#bucket", "id": match[1], "name": match[1]})
        elif (match := _XML.fullmatch(path)) and match[1] in gcs.buckets:
            self._send_media(*gcs.get(match[1], urllib.parse.unquote(match[2])))
        else:
            raise Refused(404)

    def _object(self, bucket: str, quoted: str, query: dict[str, str], media: bool) -> None:
        gcs = self.fake
        if match := re.fullmatch(r"(.+)/(rewriteTo/b/([^/]+)|moveTo)/o/(.+)", quoted):
            source, verb, target, name = match.groups()
            source, name = urllib.parse.unquote(source), urllib.parse.unquote(name)
            resource = gcs.put(target or bucket, name, gcs.get(bucket, source)[1], query)
            if verb == "moveTo":
                gcs.delete(bucket, source, {})
            self._send_json(resource | {"done": True, "resource": resource})
            return
        name = urllib.parse.unquote(quoted)
        if self.command == "DELETE":
            gcs.delete(bucket, name, query)
            self.reply(204)
        elif media or query.get("alt") == "media":
            gcs.check(bucket, name, query, 304)
            generation, data = gcs.get(bucket, name)
            if query.get("generation", str(generation)) != str(generation):
                raise Refused(404)
            self._send_media(generation, data)
        else:
            self._send_json(gcs.describe(bucket, name))

    def _send_media(self, generation: int, data: bytes) -> None:
        headers = {"x-goog-generation": str(generation), "ETag": f'"{generation}"'}
        self.reply_file(data, headers)

    def _upload(self, bucket: str, query: dict[str, str], data: bytes) -> None:
        if "upload_id" in query:
            self._resume(query["upload_id"], data)
        elif query.get("uploadType") == "multipart":
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            described, content = email.message_from_bytes(head + data).get_payload()
            name = json.loads(described.get_payload()).get("name") or query["name"]
            start = data.index(content.as_bytes().split(b"\n\n", 1)[0].split(b"\n")[-1])
            start = data.index(b"\r\n\r\n", start) + 4
            end = data.rindex(b"\r\n--")
            self._send_json(self.fake.put(bucket, name, data[start:end], query))
        elif query.get("uploadType") == "resumable":
            session = str(len(self.fake.sessions))
            name = query.get("name") or json.loads(data)["name"]
            upload = {"bucket": bucket, "name": name, "query": query, "data": b""}
            self.fake.sessions[session] = upload
            place = f"{self.fake.url}/upload/storage/v1/b/{bucket}/o?upload_id={session}"
            self.reply(200, headers={"Location": place})
        else:
            self._send_json(self.fake.put(bucket, query["name"], data, query))

    def _resume(self, session: str, data: bytes) -> None:
        upload = self.fake.sessions[session]
        total = (self.headers.get("Content-Range") or "/0").rsplit("/", 1)[1]
        upload["data"] += data
        if total == "*" or len(upload["data"]) < int(total):
            sent = len(upload["data"])
            self.reply(308, headers={"Range": f"bytes=0-{sent - 1}"} if sent else {})
            return
        place = upload["bucket"], upload["name"]
        self._send_json(self.fake.put(*place, upload["data"], upload["query"]))

    def _batch(self, data: bytes) -> None:
        parts = []
        for i, path in enumerate(re.findall(rb"DELETE (\S+)", data)):
            bucket, name = _OBJECT.search(urllib.parse.urlsplit(path.decode()).path).groups()
            status = "204 No Content"
            try:
                self.fake.delete(bucket, urllib.parse.unquote(name), {})
            except Refused:
                status = "404 Not Found"
            parts.append(
                f"--part\r\nContent-Type: application/http\r\nContent-ID: <response-{i + 1}>\r\n"
                f"\r\nHTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n\r\n"
            )
        content = ("".join(parts) + "--part--\r\n").encode()
        self.reply(200, content, {"Content-Type": "multipart/mixed; boundary=part"})

    def _send_json(self, content: dict) -> None:
        self.reply(200, json.dumps(content).encode(), {"Content-Type": "application/json"})
