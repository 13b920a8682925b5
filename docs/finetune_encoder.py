"""Fine-tune a converted encoder with transformers: topics of texts, or named entities.

    python docs/finetune_encoder.py topic runs/ro_bert_tiny_hf/checkpoint_1000 \\
        Davlan/sib200 ron_Latn --out runs/ro_topic
    python docs/finetune_encoder.py entities runs/ro_bert_tiny_hf/checkpoint_1000 \\
        unimelb-nlp/wikiann ro --out runs/ro_entities

The data set is one of the hub, or a folder with train.jsonl and test.jsonl. A row has `text` and
`category`, or `tokens` and, for each of them, a label in `ner_tags`: O, B-PER, I-PER.
"""

import argparse
import itertools

import torch
import transformers
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("job", choices=("topic", "entities"))
parser.add_argument("model", help="the folder that convert/convert.sh wrote")
parser.add_argument("data", help="a data set of the hub, or a folder")
parser.add_argument("config", nargs="?", help="the configuration of a data set of the hub")
parser.add_argument("--out", required=True, help="the folder for the fine-tuned model")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--rate", type=float, default=5e-5, help="the learning rate")
args = parser.parse_args()
of_words, target = (True, "ner_tags") if args.job == "entities" else (False, "category")
transformers.set_seed(0)

# 1. Data: a label's number is its place in `names`, as in the model's config.json.
data = load_dataset(args.data, args.config)
feature = data["train"].features[target]
labels = itertools.chain(*data["train"][target]) if of_words else data["train"][target]
classes = getattr(getattr(feature, "feature", feature), "names", None)  # then labels are numbers
names = classes or sorted(map(str, {*labels}))
number = lambda label: label if classes else names.index(str(label))

# 2. The pretrained network with a new head, in float32: bfloat16 would lose small updates.
tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
if of_words:
    auto, pad = transformers.AutoModelForTokenClassification, DataCollatorForTokenClassification
else:
    auto, pad = transformers.AutoModelForSequenceClassification, DataCollatorWithPadding
numbers = {name: i for i, name in enumerate(names)}
own = {"id2label": dict(enumerate(names)), "label2id": numbers}
model = auto.from_pretrained(args.model, dtype=torch.float32, **own)
model.to(device := "cuda" if torch.cuda.is_available() else "cpu")
length = min(256, model.config.max_position_embeddings - 2)  # RoBERTa counts positions from 2


def encode(row):
    """Return a row's ids and labels; a word's label is at its first token, the others have -100."""
    text = " ".join(row["tokens"]) if of_words else row["text"]
    found = tokenizer(text, truncation=True, max_length=length, return_offsets_mapping=True)
    spans = found.pop("offset_mapping")
    if not of_words:
        return found | {"labels": number(row[target])}
    starts = itertools.accumulate((len(word) + 1 for word in row["tokens"]), initial=0)
    at = dict(zip(starts, map(number, row[target]), strict=False))
    first = lambda span: next((at.pop(i) for i in range(*span) if i in at), -100)
    return found | {"labels": [first(span) for span in spans]}


def entities(tags):
    """Return each entity's type, first word and end, from labels such as O, B-PER and I-PER."""
    found = []
    for i, tag in enumerate(tags):
        if tag[0] == "I" and i and tags[i - 1][1:] == tag[1:]:
            found[-1] = (*found[-1][:2], i + 1)
        elif tag != "O":
            found.append((tag[2:], i, i + 1))
    return {*found}


rows = data.map(encode, remove_columns=data["train"].column_names)
train = DataLoader(rows["train"], 32, shuffle=True, collate_fn=pad(tokenizer))
test = DataLoader(rows["test"], 32, collate_fn=pad(tokenizer))

# 3. Training: AdamW, a tenth of the steps for warm-up, then linear decay.
optimizer = torch.optim.AdamW(model.parameters(), args.rate)
steps = args.epochs * len(train)
schedule = transformers.get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
model.train()
for batch in itertools.chain(*[train] * args.epochs):
    model(**batch.to(device)).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()

# 4. The test split: F1 of entities, or of topics, where it is the accuracy.
measured = entities if of_words else set
right = total = 0
model.eval()
for batch in test:
    with torch.no_grad():
        best = model(**batch.to(device)).logits.argmax(-1)
    for known, found in zip(batch["labels"], best, strict=True):
        kept = known.reshape(-1) >= 0
        pair = [[names[i] for i in ids.reshape(-1)[kept]] for ids in (known, found)]
        wanted, given = map(measured, pair)
        right, total = right + len(wanted & given), total + len(wanted) + len(given)
print(f"{'F1' if of_words else 'accuracy'} {2 * right / max(total, 1):.3f}")
model.save_pretrained(args.out)
tokenizer.save_pretrained(args.out)
