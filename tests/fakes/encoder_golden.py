"""The numbers of transformers' tiny encoders as trees and models; see tests/golden/README.md."""

import json

import numpy as np

from convert.encoders.sizes import sizes_of_hugging_face
from convert.encoders.weight_map import from_torch
from fakes.paths import GOLDEN

FAMILIES = ("bert", "roberta", "modernbert")


class EncoderGolden:
    """The numbers of one family."""

    def __init__(self, family: str):
        folder = GOLDEN / "encoders" / family
        self.settings = json.loads((folder / "config.json").read_text())
        with np.load(folder / "numbers.npz") as file:
            self.numbers = {key: file[key] for key in file.files}
        sizes = sizes_of_hugging_face(self.settings["config"])
        # The golden BERT has the heads of its pretraining; config.json does not say so.
        self.sizes = sizes.with_next_sentence(f"init/{family}.pooler.dense.bias" in self.numbers)

    def module(self, **changed):
        from t5x.examples.encoder import network

        fields = self.sizes.fields() | changed
        if self.sizes.modern:
            return network.ModernBert(network.ModernBertConfig(**fields))
        return network.Bert(network.BertConfig(**fields))

    def model(self, optimizer=None, **changed):
        from t5x.examples.encoder.model import MaskedLanguageModel

        # Half of a program's compilation is for rows with more targets than there is room for.
        share = changed.pop("predicted_share", 1.0)
        module = self.module(**changed)
        return MaskedLanguageModel(module, None, None, optimizer, predicted_share=share)

    def params(self, kind: str) -> dict:
        """Return "init", "grad" or "final" as the trainer has them, layers stacked."""
        from flax.traverse_util import unflatten_dict

        from t5x.checkpointing.layer_stacking import stack_layers

        given = self.numbers.items()
        arrays = {k.removeprefix(f"{kind}/"): v for k, v in given if k.startswith(f"{kind}/")}
        return stack_layers(unflatten_dict(from_torch(arrays, self.sizes), sep="/"))

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """Return one batch by the names that the model reads."""
        data = {k: v[step].astype(np.int32) for k, v in self.numbers.items() if v.dtype == np.int16}
        asked = data["labels"] >= 0
        batch = {
            "encoder_input_tokens": data["input_ids"],
            "encoder_target_tokens": np.where(asked, data["labels"], data["input_ids"]),
            "encoder_loss_weights": asked.astype(np.float32),
            "encoder_segment_ids": data["attention_mask"],
        }
        if "token_type_ids" in data:
            batch["encoder_type_ids"] = data["token_type_ids"]
            batch["next_sentence_label"] = data["next_sentence_label"][:, None]
        return batch
