"""sentence-transformers: the mean of an encoder's last states."""

import json
import sys

from sentence_transformers import SentenceTransformer

_, encoder, given = sys.argv[1:]
with open(given) as file:
    texts = json.load(file)["plain"]
print(json.dumps({"means": SentenceTransformer(encoder, device="cpu").encode(texts).tolist()}))
