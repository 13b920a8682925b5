"""An HTTP server on loopback, on which the fakes of a web server and of the hub are built."""

import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests to `fake`, the server that it belongs to."""

    fake: "Server"

    def reply(self, status, data=b"", headers=None):
        """Send an answer with its length."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
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
