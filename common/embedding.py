"""The rows of an embedding.

    padded_rows(32_100)        # 32128

They are a multiple of 128, which accelerators and model parallelism need.
"""

ROW_MULTIPLE = 128


def padded_rows(ids: int) -> int:
    """Return how many rows an embedding of so many ids has."""
    return -(-ids // ROW_MULTIPLE) * ROW_MULTIPLE
