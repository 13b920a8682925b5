"""What a trained model can do: bits per byte, filled-in words, minimal pairs."""
