"""From a seqio task to the rows of a batch: configuration, shards, packing, positions."""
