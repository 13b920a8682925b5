"""transformers 4: generate of a T5, fill-mask of an encoder, and words as run_ner feeds them."""

import json
import sys

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

t5, encoder, given = sys.argv[1:]
with open(given) as file:
    texts = json.load(file)
tokenizer = AutoTokenizer.from_pretrained(t5)
model = AutoModelForSeq2SeqLM.from_pretrained(t5)
inputs = [tokenizer(text, return_tensors="pt") for text in texts["t5"]]
fill = pipeline("fill-mask", encoder)
words = AutoTokenizer.from_pretrained(encoder)(
    texts["words"], is_split_into_words=True, truncation=True
)
print(
    json.dumps(
        {
            "generated": [model.generate(**each, max_new_tokens=12)[0].tolist() for each in inputs],
            "filled": [[found["token"] for found in fill(text)] for text in texts["masked"]],
            "words": [words["input_ids"], [words.word_ids(i) for i in range(len(texts["words"]))]],
        }
    )
)
