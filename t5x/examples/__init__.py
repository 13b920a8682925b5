"""Networks and the gin files of their sizes, under upstream's paths."""
