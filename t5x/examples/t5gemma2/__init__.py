"""T5Gemma 2 of text: networks and their sizes."""
