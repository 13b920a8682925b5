"""Checkpoints of the trainer to Hugging Face models, and back.

bash convert/convert.sh runs/ro_t5x_tiny
"""
