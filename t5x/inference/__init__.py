"""Predictions and scores of a trained model, over tasks, files and sentences."""
