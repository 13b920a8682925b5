"""Fine-tune a folder with a plain PyTorch loop, save it to another, and print the losses.

python torch_finetune.py FOLDER SAVED TEXTS.json
"""

import json
import sys

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder, saved, texts = sys.argv[1:]
torch.manual_seed(0)
with open(texts) as file:
    pairs = json.load(file)
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder).train()
inputs = tokenizer([source for source, _ in pairs], padding=True, return_tensors="pt")
labels = tokenizer([target for _, target in pairs], padding=True, return_tensors="pt").input_ids
labels[labels == tokenizer.pad_token_id] = -100
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for _ in range(8):
    optimizer.zero_grad()
    loss = model(**inputs, labels=labels).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.save_pretrained(saved)
tokenizer.save_pretrained(saved)
print(json.dumps(losses))
