"""Run Python's cyclic garbage collector less often than its default of every 700 new objects.

Importing JAX, TensorFlow and seqio makes half a million objects that stay, and tracing a step makes
more. The collector goes through them again and again: a fifth of the time of the imports
(4.3 s, without it 3.5), and a third of a second at once later, also between two steps.
"""

import gc

_NEW_OBJECTS, _YOUNG, _MIDDLE = 20_000, 20, 20


def collect_rarely() -> None:
    """Raise the thresholds of the three generations (`gc.set_threshold`) for this process."""
    gc.set_threshold(_NEW_OBJECTS, _YOUNG, _MIDDLE)
