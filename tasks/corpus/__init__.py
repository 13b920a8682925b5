"""A corpus: its files on disk, the hub, http(s) and gs://, and their records as a stream."""
