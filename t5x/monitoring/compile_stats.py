"""What XLA did for a run: programs compiled or found, seconds, memory.

keep("runs/tiny/compiled")       # a restart finds its programs there
seen = Compilations()            # from here on
...
print(seen.text())

XLA: 12 programs compiled, 3 found ready, in 21.4 s; the longest took 14.2, 3.1, 1.0 s.
TPU v4 0: 3.10 GiB of 30.8 GiB at most, 1.20 GiB held.
This process: 2.31 GiB of the host at most.
"""

import resource

import jax

GIB = 2**30
_COMPILED = "/jax/core/compile/backend_compile_duration"
_FOUND = "/jax/compilation_cache/cache_hits"


def keep(folder: str) -> None:
    """Keeps compiled programs in `folder`, on disk or gs://, unless JAX is told another place.

    JAX_COMPILATION_CACHE_DIR names another, JAX_ENABLE_COMPILATION_CACHE=false keeps none.
    """
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", folder)


class Compilations:
    """Counts what is compiled from its making on, in this process."""

    def __init__(self):
        self.seconds: list[float] = []
        self.found = 0
        jax.monitoring.register_event_duration_secs_listener(self._timed)
        jax.monitoring.register_event_listener(self._happened)

    def _timed(self, event: str, seconds: float, **_) -> None:
        if event == _COMPILED:
            self.seconds.append(seconds)

    def _happened(self, event: str, **_) -> None:
        self.found += event == _FOUND

    def text(self) -> str:
        """Lines on programs, and on the memory of each device of this host."""
        longest = sorted(self.seconds, reverse=True)[:3]
        lines = [
            # JAX times what it finds ready as it times what it compiles.
            f"XLA: {len(self.seconds) - self.found} programs compiled, {self.found} found ready, "
            f"in {sum(self.seconds):.1f} s; the longest took "
            f"{', '.join(f'{s:.1f}' for s in longest) or '0'} s."
        ]
        for device in jax.local_devices():
            stats = device.memory_stats() or {}
            if "peak_bytes_in_use" in stats:
                most, held = stats["peak_bytes_in_use"], stats["bytes_in_use"]
                limit = stats.get("bytes_limit")
                of = f" of {limit / GIB:.1f} GiB" if limit else ""
                lines.append(
                    f"{device.device_kind} {device.id}: {most / GIB:.2f} GiB{of} at most, "
                    f"{held / GIB:.2f} GiB held."
                )
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return "\n".join([*lines, f"This process: {host / GIB:.2f} GiB of the host at most."])
