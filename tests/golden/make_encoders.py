"""Write encoders/: what transformers' BERT, RoBERTa and ModernBERT compute, and how they train.

    .venv/bin/python tests/golden/make_encoders.py

Each file has the initial weights by Hugging Face name (`init/…`), 25 batches, logits, loss and
gradients (`grad/…`) on the first of them, the loss of each step of AdamW, and the final weights
(`final/…`).
"""

import json
from pathlib import Path

import numpy as np
import torch
import transformers

OUT = Path(__file__).resolve().parent / "encoders"
STEPS, ROWS, LENGTH, IGNORED = 25, 4, 40, -100
ADAMW = {"lr": 3e-3, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.1}
SIZES = {
    "vocab_size": 60,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "num_hidden_layers": 3,
    "attn_implementation": "eager",
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NETWORKS = {
    "bert": ("BertForPreTraining", SIZES | NO_DROPOUT | {"max_position_embeddings": LENGTH}),
    "roberta": (
        "RobertaForMaskedLM",
        SIZES
        | NO_DROPOUT
        | {"max_position_embeddings": LENGTH + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    ),
    # 7 layers: the first, and two groups. A window of 8 in rows of 40, so that it is cut in blocks.
    "modernbert": (
        "ModernBertForMaskedLM",
        SIZES
        | {"num_hidden_layers": 7, "local_attention": 8, "max_position_embeddings": 64}
        | {"pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2}
        | {"bos_token_id": 0, "eos_token_id": 2},
    ),
}


def batches(name: str) -> dict[str, np.ndarray]:
    """Return 25 batches, int [25, 4, 40], the rows of one half of them shorter; id 1 pads."""
    rng = np.random.default_rng(0)
    shape = (STEPS, ROWS, LENGTH)
    ids = rng.integers(5, SIZES["vocab_size"], shape)
    sizes = rng.integers(LENGTH // 2, 2 * LENGTH, (STEPS, ROWS, 1))
    is_real = np.arange(LENGTH) < sizes
    chosen = (rng.random(shape) < 0.2) & is_real
    arrays = {
        "input_ids": np.where(is_real, np.where(chosen, 4, ids), 1),
        "attention_mask": is_real.astype(int),
        "labels": np.where(chosen, ids, IGNORED),
    }
    if name == "bert":
        arrays["token_type_ids"] = (np.arange(LENGTH) >= sizes // 3) & is_real
        arrays["next_sentence_label"] = rng.integers(0, 2, (STEPS, ROWS))
    return {key: value.astype(np.int16) for key, value in arrays.items()}


def groups(model: torch.nn.Module) -> list[dict]:
    """Return the parameters that decay, and those that do not: biases and norms."""
    parts: dict[bool, list] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        parts[not (name.endswith("bias") or "norm" in name.lower())].append(parameter)
    return [{"params": parts[True]}, {"params": parts[False], "weight_decay": 0.0}]


def make(name: str) -> None:
    """Write one network's folder."""
    architecture, fields = NETWORKS[name]
    torch.manual_seed(0)
    config_cls = architecture.split("For")[0] + "Config"
    config = getattr(transformers, config_cls)(**fields)
    model = getattr(transformers, architecture)(config).train()
    with torch.no_grad():  # norms and biases, too, so that none can be taken for another
        for key, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, 1.0 if "norm" in key.lower() else 0.0, 0.3)
    weights = lambda: {k: v.detach().numpy().copy() for k, v in model.named_parameters()}
    numbers = {f"init/{key}": value for key, value in weights().items()}
    data = batches(name)
    optimizer = torch.optim.AdamW(groups(model), **ADAMW)
    losses = []
    for step in range(STEPS):
        batch = {key: torch.from_numpy(value[step]).long() for key, value in data.items()}
        optimizer.zero_grad()
        out = model(**batch)
        out.loss.backward()
        if step == 0:
            logits = out.prediction_logits if name == "bert" else out.logits
            numbers["logits"] = logits.detach().numpy()
            if name == "bert":
                numbers["next_sentence_logits"] = out.seq_relationship_logits.detach().numpy()
            numbers |= {f"grad/{k}": v.grad.numpy().copy() for k, v in model.named_parameters()}
        optimizer.step()
        losses.append(out.loss.item())
    numbers |= {f"final/{key}": value for key, value in weights().items()}
    numbers |= data | {"losses": np.array(losses, np.float32)}
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "numbers.npz", **numbers)
    record = {"config": config.to_diff_dict(), "adamw": ADAMW, "made_by": transformers.__version__}
    (folder / "config.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    for name in NETWORKS:
        make(name)
