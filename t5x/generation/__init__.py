"""What decoding needs of the model: incremental steps, key-value caches, top-k."""
