"""Checks of a run before a TPU is rented: its faults, memory and price."""
