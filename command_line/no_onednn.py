"""Have TensorFlow leave out oneDNN, whose pass over each graph looks for products.

TensorFlow only reads data here, without any product, but the pass took 2 % of the processor's time
until a first step, since each function of each pipeline has a graph (`perf record -g`). Importing
this module sets TF_ENABLE_ONEDNN_OPTS=0, which TensorFlow reads when it is imported; a value that
is set already stays.
"""

import os


def provide() -> None:
    """Set the variable, unless it is set."""
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


provide()
