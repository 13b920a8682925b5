"""Jobs that a trained model is fine-tuned for, one module each."""
