"""The trainer: the T5X interface on released packages, from a batch of ids to a checkpoint."""

# Before seqio and TensorFlow.
from command_line import (  # noqa: F401
    buckets,
    edit_distance,
    lazy_imports,
    no_keras,
    no_onednn,
    no_triton,
)
