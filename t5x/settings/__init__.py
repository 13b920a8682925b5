"""Reads and checks gin files: names, types, limits and upstream's arguments."""
