"""An HTTP server on loopback, on which the fakes of web servers, the hub and buckets are built."""

import http.server
import threading


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

    def log_message(self, *_):
        pass


class Server:
    """Serves at `url` until it is closed, or the end of a `with` block."""

    def __init__(self, handler: type[Handler]):
        bound = type("Handler", (handler,), {"fake": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), bound)
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
