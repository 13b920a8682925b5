"""Bytes from disk, the Hugging Face hub, http(s) and gs://: listing, reading, caching, retrying."""
