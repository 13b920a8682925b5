"""Encoders to Hugging Face folders and back."""
