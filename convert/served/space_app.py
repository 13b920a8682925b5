"""A page that tries the model: `python app.py` here, or a Space of the Hugging Face hub.

The model is the one that `space.json` names, or the folder or hub name in $MODEL.
"""

import json
import os
from pathlib import Path
from typing import Any


def settings(folder: Path) -> dict[str, Any]:
    """Return `space.json`, with a model beside this folder as a path, and $MODEL instead if set."""
    found = json.loads((folder / "space.json").read_text())
    model = found["model"]
    if model.startswith("../"):
        model = str((folder / model).resolve())
    return found | {"model": os.environ.get("MODEL", model)}


def load(name: str):
    """Return a function from an input text to the model's output."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(name)
    model = AutoModelForSeq2SeqLM.from_pretrained(name)
    if model.config.model_type == "umt5":  # or transformers 5 scales the logits
        model.config.tie_word_embeddings = AutoConfig.from_pretrained(name).tie_word_embeddings

    def generate(text: str, tokens: int) -> str:
        inputs = tokenizer(text, return_tensors="pt")
        (output,) = model.generate(**inputs, max_new_tokens=int(tokens), do_sample=False)
        return tokenizer.decode(output).replace("<pad>", "").strip()

    return generate


def build(folder: Path):
    """Return the page."""
    import gradio

    given = settings(folder)
    return gradio.Interface(
        load(given["model"]),
        [
            gradio.Textbox(label="Input", value=given["examples"][0] if given["examples"] else ""),
            gradio.Slider(1, 128, value=20, step=1, label="Tokens at most"),
        ],
        gradio.Textbox(label="Output"),
        title=given["title"],
        examples=[[text, 20] for text in given["examples"]] or None,
        cache_examples=False,
        api_name="generate",
    )


if __name__ == "__main__":
    build(Path(__file__).resolve().parent).launch()
