"""What a run reports: progress bar, metric writers, event log, throughput, compile statistics."""
