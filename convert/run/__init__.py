"""What a training run left in its folder: bindings, checkpoints, vocabulary, losses."""
