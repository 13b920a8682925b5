"""From text to token ids: sources, normalization, vocabularies, objectives, and the tasks.

Importing a module of tasks registers them with seqio and touches neither network nor corpora.
"""

# Before seqio and TensorFlow.
from command_line import (  # noqa: F401
    buckets,
    edit_distance,
    lazy_imports,
    no_keras,
    no_onednn,
    no_triton,
)
