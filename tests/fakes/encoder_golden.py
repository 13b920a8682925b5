"""The numbers of transformers' tiny encoders as trees and models; see tests/golden/README.md."""

import dataclasses
import json

import numpy as np

from convert import weight_map
from convert.proof.t5x_logits import module_of
from convert.sizes import BertSizes, read_config
from fakes.paths import GOLDEN

FAMILIES = ("bert", "roberta", "modernbert")


class EncoderGolden:
    """The numbers of one family."""

    def __init__(self, family: str):
        folder = GOLDEN / "encoders" / family
        self.settings = json.loads((folder / "config.json").read_text())
        with np.load(folder / "numbers.npz") as file:
            self.numbers = {key: file[key] for key in file.files}
        self.sizes = read_config(self.settings["config"])
        # The golden BERT has the heads of its pretraining; config.json does not say so.
        has_heads = f"init/{family}.pooler.dense.bias" in self.numbers
        if isinstance(self.sizes, BertSizes):
            self.sizes = dataclasses.replace(self.sizes, next_sentence=has_heads)

    def module(self, **changed):
        module = module_of(self.sizes)
        return module.clone(config=dataclasses.replace(module.config, **changed))

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

        numbers = self.numbers.items()
        arrays = {k.removeprefix(f"{kind}/"): v for k, v in numbers if k.startswith(f"{kind}/")}
        tree = {
            source: part
            for tensor in weight_map.tensors(self.sizes)
            for source, part in zip(
                tensor.sources, tensor.from_torch(arrays[tensor.target]), strict=True
            )
        }
        return stack_layers(unflatten_dict(tree, sep="/"))

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """Return one batch by the names that the model reads."""
        data = {k: v[step].astype(np.int32) for k, v in self.numbers.items() if v.dtype == np.int16}
        is_masked = data["labels"] >= 0
        batch = {
            "encoder_input_tokens": data["input_ids"],
            "encoder_target_tokens": np.where(is_masked, data["labels"], data["input_ids"]),
            "encoder_loss_weights": is_masked.astype(np.float32),
            "encoder_segment_ids": data["attention_mask"],
        }
        if "token_type_ids" in data:
            batch["encoder_type_ids"] = data["token_type_ids"]
            batch["next_sentence_label"] = data["next_sentence_label"][:, None]
        return batch
