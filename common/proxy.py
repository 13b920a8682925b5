"""Reach machines of one's own past the proxy of the environment.

os.environ.update(without_proxy("10.0.0.2", os.environ))
"""

from collections.abc import Mapping


def without_proxy(host: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that let gRPC reach a host without the proxy of http(s)_proxy.

    A proxy usually reaches neither this machine nor those of a cluster; gRPC then waits without a
    word. It reads no_grpc_proxy in place of no_proxy.
    """
    names = environment.get("no_grpc_proxy") or environment.get("no_proxy")
    return {"no_grpc_proxy": ",".join(filter(None, [names, host]))}
