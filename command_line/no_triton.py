"""Keep the package `triton` out of processes that import TensorFlow.

Once TensorFlow is imported, importing triton ends the process with a segmentation fault (TensorFlow
2.21, triton 3.7). PyTorch's build with CUDA brings triton, and transformers imports it where it is
installed. Only `torch.compile` needs it, which nothing here uses. Importing this module makes
`import triton` an ImportError, unless triton was imported before.
"""

import sys


def provide() -> None:
    """Make `import triton` raise ImportError."""
    sys.modules.setdefault("triton", None)  # type: ignore[arg-type]  # as the import system means it


provide()
