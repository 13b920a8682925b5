"""Reports of a run: progress bar, metric writers, event log, throughput, compile statistics."""
