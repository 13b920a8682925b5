"""Counts the programs that XLA compiles, and measures the memory used.

XLA: 12 programs compiled, 3 found in the cache, in 21.4 s; the longest took 14.2, 3.1, 1.0 s.
TPU v4 0: 3.10 GiB of 30.8 GiB at most, 1.20 GiB held.
This process: 2.31 GiB of the host at most.
"""

import resource

import jax

GIB = 2**30
COMPILED = "/jax/core/compile/backend_compile_duration"
_CACHE_HIT = "/jax/compilation_cache/cache_hits"


class CompileStats:
    """Counts what this process compiles from now on."""

    def __init__(self):
        self.seconds: list[float] = []
        self.cached = 0
        jax.monitoring.register_event_duration_secs_listener(self._add_seconds)
        jax.monitoring.register_event_listener(self._add_cache_hit)

    def _add_seconds(self, event: str, duration_secs: float, **_) -> None:
        if event == COMPILED:
            self.seconds.append(duration_secs)

    def _add_cache_hit(self, event: str, **_) -> None:
        self.cached += event == _CACHE_HIT

    def text(self) -> str:
        """Return lines about programs, and the memory of each device and of this host."""
        longest = ", ".join(f"{s:.1f}" for s in sorted(self.seconds, reverse=True)[:3]) or "0"
        lines = [
            # JAX times programs from the cache in the same way as compiled ones.
            f"XLA: {len(self.seconds) - self.cached} programs compiled, {self.cached} found in the "
            f"cache, in {sum(self.seconds):.1f} s; the longest took {longest} s."
        ]
        for device in jax.local_devices():
            stats = device.memory_stats() or {}
            if "peak_bytes_in_use" in stats:
                limit = stats.get("bytes_limit")
                limit_text = f" of {limit / GIB:.1f} GiB" if limit else ""
                lines.append(
                    f"{device.device_kind} {device.id}: {stats['peak_bytes_in_use'] / GIB:.2f} GiB"
                    f"{limit_text} at most, {stats['bytes_in_use'] / GIB:.2f} GiB held."
                )
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return "\n".join([*lines, f"This process: {host / GIB:.2f} GiB of the host at most."])


def peak_bytes() -> int | None:
    """Return the peak memory of the devices of this host, the largest, or None if unknown."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return max((s["peak_bytes_in_use"] for s in stats if "peak_bytes_in_use" in s), default=None)
