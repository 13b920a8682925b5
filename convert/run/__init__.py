"""What a training run leaves in its folder: gin bindings, checkpoints, vocabulary, losses."""
