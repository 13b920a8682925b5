"""Processes of one machine compile a program once, and find it at the next start."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

from t5x.multihost import shared_programs

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Prints the numbers of this process, and whether it has compiled or found their program.
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
address, index, folder = sys.argv[2], int(sys.argv[3]), sys.argv[4]
import jax
jax.distributed.initialize(address, 2, index)
jax.config.update("jax_compilation_cache_dir", folder)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
from t5x.multihost import shared_programs
shared_programs.share_programs(address)
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
sharding = NamedSharding(Mesh(jax.devices(), ("x",)), PartitionSpec("x"))
mine = np.arange(2, dtype=np.float32) + 2 * index
numbers = jax.make_array_from_process_local_data(sharding, mine)
cumulated = jax.jit(lambda x: x.cumsum() * x.size, out_shardings=sharding)(numbers)
found = "/jax/compilation_cache/cache_hits" in events
shown = [value for shard in cumulated.addressable_shards for value in shard.data.tolist()]
print("SHOWN", shown, found, flush=True)
jax.distributed.shutdown()
"""


def start(folder):
    """Return what each of two processes prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    arguments = [sys.executable, "-c", WORKER, str(ROOT), address]
    running = [
        subprocess.Popen(
            [*arguments, str(index), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    lines = []
    for process in running:
        out, said = process.communicate(timeout=120)
        assert process.returncode == 0, said[-3000:]
        lines += [line for line in out.splitlines() if line.startswith("SHOWN")]
    return lines


def test_two_processes_compile_once_and_find_the_program_at_the_next_start(tmp_path):
    numbers = ["[0.0, 4.0]", "[12.0, 24.0]"]
    first = start(tmp_path)
    assert [line.split(" ", 1)[1].rsplit(" ", 1)[0] for line in first] == numbers
    assert len(list(tmp_path.glob("*lambda*-cache"))) == 1
    assert start(tmp_path) == [f"SHOWN {shown} True" for shown in numbers]


@pytest.mark.parametrize("address", ["10.0.0.2:8476", "worker-0:8476", "mylocalhost:1"])
def test_processes_of_several_machines_share_nothing(address):
    shared_programs.share_programs(address)  # would fail, since JAX has no coordinator here
