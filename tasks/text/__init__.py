"""From raw text to token chunks: cleaning, sentence splitting, tokenization."""
