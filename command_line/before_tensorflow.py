"""What must be imported before seqio and TensorFlow, by each package that imports them."""

from command_line import (  # noqa: F401
    edit_distance,
    lazy_imports,
    no_onednn,
    no_triton,
    unused_tensorflow,
)
