"""T5: layers, network, and one gin file a size."""
