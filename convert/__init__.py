"""Checkpoints of the trainer to Hugging Face models, and back."""

import sys

# PyTorch's build for CUDA brings triton. Importing it after TensorFlow ends the process with a
# segmentation fault (TensorFlow 2.21, triton 3.7), and only `torch.compile` needs it.
sys.modules.setdefault("triton", None)  # type: ignore[arg-type]  # as the import system means it
