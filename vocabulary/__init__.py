"""SentencePiece vocabularies: train one, check one, change one.

python -m vocabulary.train --corpus 'data/ro_mini/*.jsonl' --size 2048 --out ro.model
python -m vocabulary.check ro.model --vocab_size 2048
"""
