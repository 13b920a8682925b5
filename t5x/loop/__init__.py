"""The training loop: when to log, evaluate and save, and the folder of the run."""
