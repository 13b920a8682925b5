"""A worker is known by flags, by the variables of GKE or by the metadata of a TPU VM."""

import http.server
import threading

import pytest

from fakes.refuses import refuses
from t5x.multihost.worker import Worker, find_worker


def test_a_worker_is_given_by_flags():
    assert find_worker("a:1", 4, 2, {}) == Worker("a:1", 4, 2)
    with refuses("--coordinator_address"):
        find_worker("a:1", None, None, {})


def test_a_worker_of_gke_is_known_by_its_variables():
    given = {"TPU_WORKER_HOSTNAMES": "a.svc,b.svc", "TPU_WORKER_ID": "1"}
    assert find_worker(None, None, None, given) == Worker("a.svc:8482", 2, 1)
    given["JAX_COORDINATOR_PORT"] = "99"
    assert find_worker(None, None, None, given) == Worker("a.svc:99", 2, 1)


@pytest.mark.parametrize("endpoints", ["10.0.0.2,10.0.0.3", "n:1:10.0.0.2,n:2:10.0.0.3", None])
def test_a_worker_of_a_tpu_vm_is_known_by_its_metadata(endpoints):
    known = {"agent-worker-number": "1", "worker-network-endpoints": endpoints}

    class Metadata(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = known[self.path.rpartition("/")[2]] if endpoints else None
            is_asked = self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if text and is_asked else 404)
            self.end_headers()
            self.wfile.write((text or "").encode())

    with http.server.HTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        given = {"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"}
        expected = Worker("10.0.0.2:8482", 2, 1) if endpoints else None
        assert find_worker(None, None, None, given) == expected
        server.shutdown()
