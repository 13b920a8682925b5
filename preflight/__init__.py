"""What can be known of a run before a TPU is paid for."""
