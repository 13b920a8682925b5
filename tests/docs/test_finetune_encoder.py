"""The script that fine-tunes a converted encoder learns topics and entities of generated texts."""

import json
import random
import re
import subprocess
import sys

import pytest
import safetensors.torch
import torch
import transformers

from convert import __main__ as command
from convert import from_hf
from fakes import tokenizer_files
from fakes.paths import ROOT

TOPICS = {"travel": "trenul merge spre munte", "food": "supa are ceapa dulce"}
NAMES = {"PER": ["Ion Pop", "Ana"], "LOC": ["Cluj", "Satu Mare"]}
OTHERS = ["vede", "azi", "pe", "lunga"]


def converted(root, family, tokenizer, dtype):
    """Converts a run of a small network with random weights; returns its folder."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 96, "max_position_embeddings": 66, "vocab_size": 2048}
    config = getattr(transformers, f"{family}Config")(**sizes)
    getattr(transformers, f"{family}ForMaskedLM")(config).save_pretrained(root / "published")
    transformers.AutoTokenizer.from_pretrained(tokenizer).save_pretrained(root / "published")
    from_hf.write_checkpoint(root / "published", root / "run", verify_logits=False)
    flags = ["--out", str(root / "hf"), "--dtype", dtype, "--no_verify"]
    assert command.main([str(root / "run"), *flags]) == 0
    return root / "hf/checkpoint_0"


def topic(draw):
    name = draw.choice([*TOPICS])
    return {"text": " ".join(draw.sample(TOPICS[name].split(), 3)), "category": name}


def entities(draw):
    tokens, tags = [], []
    for kind in draw.choices(["O", *NAMES], k=3):
        words = draw.choice(NAMES.get(kind, OTHERS)).split()
        tokens += words
        tags += ["O"] if kind == "O" else [f"B-{kind}", *[f"I-{kind}"] * (len(words) - 1)]
    return {"tokens": tokens, "ner_tags": tags}


def stars(draw):
    """A topic whose name is a number, and not its place among all."""
    row = topic(draw)
    return row | {"category": 3 + [*TOPICS].index(row["category"])}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "family", "dtype"),
    [
        (topic, "Bert", "float32"),
        (stars, "Bert", "float32"),
        (entities, "Roberta", "float32"),
        (topic, "Bert", "bfloat16"),
    ],
)
def test_what_there_is_to_learn_is_learned(make, family, dtype, tmp_path):
    """Whatever the labels and the weights are; what is trained and saved is float32."""
    tokenizer = tokenizer_files.WORDPIECE
    if family == "Roberta":
        tokenizer = tokenizer_files.byte_bpe(tmp_path / "byte_bpe")
    folder, draw = converted(tmp_path, family, tokenizer, dtype), random.Random(0)
    job = "entities" if make is entities else "topic"
    data = tmp_path / "data"
    data.mkdir()
    for split, count in (("train", 400), ("test", 100)):
        rows = [json.dumps(make(draw)) for _ in range(count)]
        (data / f"{split}.jsonl").write_text("\n".join(rows))
    words = [job, str(folder), str(data), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, ROOT / "docs/finetune_encoder.py", *words, "--epochs=6", "--rate=2e-3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (score,) = re.findall(r"^(?:F1|accuracy) (\S+)$", done.stdout, re.MULTILINE)
    assert float(score) > 0.95
    pipeline = {"topic": "text-classification", "entities": "token-classification"}
    saved = safetensors.torch.load_file(tmp_path / "out/model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    label = transformers.pipeline(pipeline[job], str(tmp_path / "out"))
    text, wanted = ("Ion Pop vede", "B-PER") if make is entities else ("supa are", "food")
    wanted = "4" if make is stars else wanted
    assert (label(text)[0].get("label") or label(text)[0]["entity"]) == wanted
