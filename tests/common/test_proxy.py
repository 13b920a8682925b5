"""gRPC reaches the machines that are named, and every other one as before."""

import pytest

from common.proxy import without_proxy


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({"http_proxy": "http://a:1"}, "10.0.0.2"),
        ({"no_proxy": "a.org,b.org"}, "a.org,b.org,10.0.0.2"),
        ({"no_proxy": "a.org", "no_grpc_proxy": "b.org"}, "b.org,10.0.0.2"),
    ],
)
def test_a_host_is_reached_without_a_proxy(environment, names):
    assert without_proxy("10.0.0.2", environment) == {"no_grpc_proxy": names}
