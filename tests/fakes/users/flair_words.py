"""Flair: the state of each word's first piece."""

import json
import sys

from flair.data import Sentence
from flair.embeddings import TransformerWordEmbeddings

_, encoder, given = sys.argv[1:]
with open(given) as file:
    words = json.load(file)["words"]
embeddings = TransformerWordEmbeddings(
    encoder, layers="-1", subtoken_pooling="first", fine_tune=False
)
sentences = [Sentence(each) for each in words]
embeddings.embed(sentences)
print(json.dumps({"states": [[t.embedding.tolist() for t in s] for s in sentences]}))
