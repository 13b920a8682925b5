"""A folder served over loopback HTTP, with faults."""

import collections
import http.server
import threading


class FileServer:
    """Serves a folder over loopback HTTP, with or without ranges, with `faults`."""

    def __init__(self, folder, ranges=True):
        self.sent = collections.Counter()
        self.asked = []
        self.faults = []
        self.down = False  # answers only 503
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path = folder / self.path.lstrip("/")
                data = path.read_bytes() if path.exists() else b""
                outer.asked.append((self.path, self.headers.get("Range")))
                fault = outer.faults.pop() if outer.faults else None
                fault = 503 if outer.down else fault if path.exists() else 404
                if isinstance(fault, int):
                    self.send_response(fault)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                asked = self.headers.get("Range") if ranges else None
                start, stop = 0, len(data)
                if asked:
                    first, last = asked.removeprefix("bytes=").split("-")
                    start, stop = int(first), min(int(last) + 1, len(data))
                self.send_response(206 if asked else 200)
                if asked:
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
                self.send_header("Content-Length", str(stop - start))
                self.end_headers()
                body = data[start:stop]
                outer.sent[self.path] += len(body)
                self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)

            def log_message(self, *args):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
