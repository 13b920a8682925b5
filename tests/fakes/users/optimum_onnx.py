"""optimum: a T5 and an encoder as ONNX generate and fill masks."""

import json
import sys
import tempfile

import torch
from optimum.exporters.onnx import main_export
from optimum.onnxruntime import ORTModelForMaskedLM, ORTModelForSeq2SeqLM
from transformers import AutoTokenizer

t5, encoder, given = sys.argv[1:]
with open(given) as file:
    texts = json.load(file)
with tempfile.TemporaryDirectory() as out:
    main_export(t5, f"{out}/t5", task="text2text-generation-with-past")
    main_export(encoder, f"{out}/encoder", task="fill-mask")
    tokenizer = AutoTokenizer.from_pretrained(f"{out}/t5")
    model = ORTModelForSeq2SeqLM.from_pretrained(f"{out}/t5")
    inputs = [tokenizer(text, return_tensors="pt") for text in texts["t5"]]
    generated = [model.generate(**each, max_new_tokens=12)[0].tolist() for each in inputs]
    tokenizer = AutoTokenizer.from_pretrained(f"{out}/encoder")
    model = ORTModelForMaskedLM.from_pretrained(f"{out}/encoder")
    filled = []
    for text in texts["masked"]:
        each = tokenizer(text, return_tensors="pt")
        at = each["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        filled.append(torch.as_tensor(model(**each).logits)[0, at].topk(5).indices.tolist())
print(json.dumps({"generated": generated, "filled": filled}))
