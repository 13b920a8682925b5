"""The checks that preflight makes, one module each."""
