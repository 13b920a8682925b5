"""Time the phases of this process from its start to its first result.

    startup_times.done("imports")        # where a phase ends
    startup_times.text()                 # "First result after 14.1 s: imports 5.2, data 2.1, …"

Work that runs beside others, such as compiling, counts only while the process waits for it.
"""

import time

import psutil


def _process_start() -> float:
    """Return when this process began, as `time.time` counts."""
    created = psutil.Process().create_time()
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return created
    # Linux knows it in hundredths of a second since boot, but the time of boot in entire seconds.
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - (created - psutil.boot_time())
    return time.time() - age


_seconds: dict[str, float] = {}
_ended = _process_start()
_complete = False


def done(phase: str, last: bool = False) -> None:
    """Add the time since the phase before to this phase, which may end several times.

    Phases after one that is the `last` are not counted.
    """
    global _ended, _complete
    if _complete:
        return
    now = time.time()
    _seconds[phase] = _seconds.get(phase, 0.0) + now - _ended
    _ended, _complete = now, last


def text() -> str:
    """Return a line with the seconds of each phase."""
    phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in _seconds.items())
    return f"First result after {sum(_seconds.values()):.1f} s: {phases}."
