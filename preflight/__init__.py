"""Checks of a run before a TPU is rented: its faults, memory and price."""

import command_line.edit_distance  # noqa: F401  before seqio
