"""Searches over settings of a recipe by compiling its step: fit, sweep, compare slices."""
