"""One shard of a corpus as a resumable tf.data pipeline."""
