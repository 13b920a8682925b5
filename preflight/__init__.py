"""Checks of a run before a TPU is rented: its faults, memory and price.

python -m preflight --gin_file gin/ro_t5x_base.gin --slice v4-8
"""
