"""Readers and writers of weight files."""
