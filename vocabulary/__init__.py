"""SentencePiece vocabularies: train, check, trim or extend one.

python -m vocabulary.train --corpus 'data/ro_mini/*.jsonl' --size 2048 --out ro.model
python -m vocabulary.check ro.model --vocab_size 2048
python -m vocabulary.trim mt5.model --corpus 'corpus/*.jsonl' --size 32000 --out ro_mt5.model
python -m vocabulary.extend ro.model --pieces words.txt --out ro_law.model

With --checkpoint, trim and extend change a T5X checkpoint together with its vocabulary.
"""
