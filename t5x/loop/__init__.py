"""The training loop, and when it logs, evaluates and saves."""
