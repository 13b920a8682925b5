"""What a run reports: progress bar, metrics, events, throughput, compiled programs."""
