"""Find out which of several processes this is, and where all of them meet.

  find_worker(None, None, None, os.environ)     # Worker("10.0.0.2:8482", count=4, index=1)

Workers count from 0, as `gcloud … --worker=N` does.
"""

import dataclasses
import urllib.request
from collections.abc import Mapping

from common.errors import UserError

_PORT = "8482"  # port of JAX's coordinator on a TPU, unless JAX_COORDINATOR_PORT is set


@dataclasses.dataclass(frozen=True)
class Worker:
    """This process as number `index` of `count`, and the coordinator's host:port."""

    address: str
    count: int
    index: int

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address as sockets take it."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)


def find_worker(
    address: str | None, count: int | None, index: int | None, environment: Mapping[str, str]
) -> Worker | None:
    """Return this worker from the arguments, or else from its TPU slice; None without either.

    A slice tells it by environment variables (GKE) or by the metadata of a TPU VM. Raise UserError
    for an address without the number of processes or the index of this one.
    """
    if address is not None:
        if count is None or index is None:
            raise UserError(
                "--coordinator_address",
                address,
                "which does not say which of several processes this is",
                "set --process_count=N and --process_index=I, too",
            )
        return Worker(address, count, index)
    hosts = environment.get("TPU_WORKER_HOSTNAMES", "")
    number = environment.get("TPU_WORKER_ID", "")
    if not (hosts and number):
        server = environment.get("GCE_METADATA_HOST", "metadata.google.internal")
        try:
            number = _metadata(server, "agent-worker-number")
            endpoints = _metadata(server, "worker-network-endpoints").split(",")
        except OSError:
            return None
        hosts = ",".join(endpoint.split(":")[-1] for endpoint in endpoints)
    if not number.strip().isdecimal():
        return None
    first, *others = (host.strip() for host in hosts.split(","))
    port = environment.get("JAX_COORDINATOR_PORT", _PORT)
    return Worker(f"{first}:{port}", 1 + len(others), int(number))


def _metadata(server: str, name: str) -> str:
    url = f"http://{server}/computeMetadata/v1/instance/attributes/{name}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()
