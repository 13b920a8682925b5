"""A converted T5 and its tokenizer, for the commands that show what it writes."""

from pathlib import Path
from typing import Any

from common.errors import UserError
from convert.proof.same_ids import sentinel_ids
from convert.proof.torch_logits import load_torch


class TextModel:
    """A model and its tokenizer, loaded once from the last conversion in a folder."""

    def __init__(self, folder: Path):
        from transformers import AutoTokenizer

        folder = last_converted(folder)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model = load_torch(folder)
        self.sentinels = sentinel_ids(self.tokenizer)


def last_converted(folder: Path) -> Path:
    """Return the folder or its last `checkpoint_<step>`; raise UserError if there is no model."""
    if (folder / "config.json").is_file():
        return folder
    steps = {}
    for path in folder.glob("checkpoint_*/config.json"):
        number = path.parent.name.split("_")[1]
        if number.isdigit():
            steps[int(number)] = path.parent
    if not steps:
        raise UserError(f"{folder} holds no converted model: make one with convert/convert.sh.")
    return steps[max(steps)]
