"""Spend less time in Python's cyclic garbage collector.

JAX, TensorFlow and seqio make half a million objects that stay, and tracing a step makes more. By
default the collector goes through them after every 700 new ones: a third of the time of the imports
(2.9 s, without it 2.1), a third of a second at once later, also between two steps, and 0.9 s when
the process ends.

garbage_collection.collect_rarely()      # at the start of a command

garbage_collection.pause()               # or, where `guard.guarded` marks the end of the imports
import t5x.trainer
garbage_collection.resume()
"""

import atexit
import gc

_NEW_OBJECTS, _YOUNG, _MIDDLE = 20_000, 20, 20


def collect_rarely() -> None:
    """Raise the thresholds of the three generations, and collect nothing when the process ends.

    See `gc.set_threshold` and `gc.freeze`.
    """
    gc.set_threshold(_NEW_OBJECTS, _YOUNG, _MIDDLE)
    # A command does not rely on finalizers of what is left: memory and files are the system's.
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def pause() -> None:
    """Collect nothing until `resume`, then rarely."""
    collect_rarely()
    gc.disable()


def resume() -> None:
    """After `pause`, collect again, but never go through what exists by now."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
