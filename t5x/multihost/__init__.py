"""Coordination of several hosts: start-up check, broadcast, preemption."""
