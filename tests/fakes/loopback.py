"""A free port, and an HTTP server, on which fakes of web servers, the hub and buckets are built."""

import contextlib
import http.server
import re
import secrets
import socket
import ssl
import sys
import threading


def free_port() -> int:
    """Return the number of a port on which nothing listens.

    The system gives it to nobody else before it is used: it gives higher ones.
    """
    while True:
        port = secrets.choice(range(20_000, 32_000))
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests; `fake` is the `Server` that it belongs to."""

    fake: "Server"

    def reply(self, status, data=b"", headers=None):
        """Send an answer with its length, if its status may have a body."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def byte_range(self, size):
        """Return where the requested range of a file starts and stops, or None for all of it."""
        header = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        return header and (int(header[1]), min(int(header[2] or size) + 1, size))

    def reply_file(self, data, headers):
        """Send a file, or the requested range of it."""
        part = self.byte_range(len(data))
        if part is None:
            return self.reply(200, data, headers)
        start, stop = part
        if start >= len(data):
            return self.reply(416)
        headers = {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        return self.reply(206, data[start:stop], headers)

    def log_message(self, *_):
        pass


class _HttpServer(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        gone = ConnectionError | ssl.SSLError | ValueError  # a client that went away
        if not isinstance(sys.exc_info()[1], gone):
            super().handle_error(request, client_address)


class Server:
    """Serves at `url` until it is closed, or the end of a `with` block."""

    def __init__(self, handler: type[Handler]):
        bound = type("Handler", (handler,), {"fake": self})
        self._server = _HttpServer(("127.0.0.1", 0), bound)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
