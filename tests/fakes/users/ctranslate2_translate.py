"""CTranslate2: a converted T5 translates greedily."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import ctranslate2
from transformers import AutoTokenizer

t5, _, given = sys.argv[1:]
with open(given) as file:
    texts = json.load(file)["t5"]
tokenizer = AutoTokenizer.from_pretrained(t5)
with tempfile.TemporaryDirectory() as out:
    converter = Path(sys.executable).with_name("ct2-transformers-converter")
    subprocess.run([converter, "--model", t5, "--output_dir", f"{out}/ct2"], check=True)
    translator = ctranslate2.Translator(f"{out}/ct2")
    tokens = [tokenizer.convert_ids_to_tokens(tokenizer.encode(text)) for text in texts]
    found = translator.translate_batch(tokens, beam_size=1, max_decoding_length=12)
print(json.dumps({"generated": [tokenizer.convert_tokens_to_ids(f.hypotheses[0]) for f in found]}))
