"""Let the processes of a pod on one machine's CPU share their compiled programs.

JAX keeps the programs of process 0 alone, for all to find. But on a CPU the other processes look
for others: a program's key has a fingerprint of the machine that also depends on a process's own
devices. So each process would compile each program, at every start. Here all use the key of process
0, which compiles for the others. On TPUs the keys are the same anyway, and hosts have own cores.
"""

import re

import jax
from jax._src import cache_key, distributed  # have no public names; jax is pinned
from jax._src.lib import xla_client

_KEY = "shared_programs/fingerprint"
_SECONDS = 300  # to wait for process 0, which started at the same time


def share_programs(address: str) -> None:
    """Share programs if the coordinator's address, "host:port", is this machine, and it is a CPU.

    Every process of the pod must call this, once JAX is initialized.
    """
    if not re.match(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\]):", address):
        return
    devices, client = jax.local_devices(), distributed.global_state.client
    if client is None or devices[0].platform != "cpu":
        return
    if jax.process_index() == 0:
        own = xla_client.get_topology_for_devices(devices).fingerprint()
        client.key_value_set(_KEY, str(own))
    fingerprint = client.blocking_key_value_get(_KEY, 1000 * _SECONDS).encode()
    cache_key._hash_accelerator_config = lambda hash_obj, accelerators: hash_obj.update(fingerprint)
    jax.config.update("jax_share_binary_between_hosts", True)
