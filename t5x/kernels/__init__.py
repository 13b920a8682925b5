"""Attention and feed-forward kernels with hand-written gradients."""
