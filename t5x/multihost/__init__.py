"""What several hosts do together: start-up check, broadcast, preemption."""
