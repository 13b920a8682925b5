"""Rows of an encoder: masked inputs, their targets, and where tokens are predicted.

An example has `inputs` with masks, `targets` without, and `loss_weights`, 1 where a token is to be
predicted, else 0; all int32 [n]. It may have `type_ids` [n] and `next_sentence_label` [1]. A row
holds examples end to end with `pack`, else one, as in `t5x.input_pipeline.packing`:

    inputs        [2 4 3] [2 9 3]     encoder_input_tokens   2 4 3 2 9 3 0
    targets       [2 7 3] [2 9 3]     encoder_target_tokens  2 7 3 2 9 3 0
    loss_weights  [0 1 0] [0 1 0]     encoder_loss_weights   0 1 0 0 1 0 0
                                      encoder_segment_ids    1 1 1 2 2 2 0
                                      encoder_positions      0 1 2 0 1 2 0

Any id can be padding in an encoder's vocabulary, and any can be a token, so padding is only what
has segment 0. Until rows are complete, values are raised by 2: 0 then fills examples up, and 1 says
that a place has no label.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import seqio
import tensorflow as tf

from common.errors import UserError
from t5x.input_pipeline.packing import Arrays, PairRows, concatenate

_RAISED = 2
_REQUIRED = ("inputs", "targets", "loss_weights")
_LABEL = "next_sentence_label"
_INT32 = seqio.FeatureConverter.FeatureSpec(tf.int32)
_NAMES = {
    "inputs": "encoder_input_tokens",
    "targets": "encoder_target_tokens",
    "loss_weights": "encoder_loss_weights",
    "type_ids": "encoder_type_ids",
}


class EncoderRows(PairRows):
    """Rows of examples with the features of `spec`, all of one length.

    Raise UserError for a task that is not one of masked language modeling, or differing lengths.
    """

    filler = -_RAISED

    def __init__(
        self,
        spec: Mapping[str, tf.TensorSpec],
        lengths: Mapping[str, int] | None,
        pack: bool,
        trim: bool = True,
        task: str = "the task",
    ):
        if missing := [name for name in _REQUIRED if name not in spec]:
            raise UserError(
                f"task {task}",
                why=f"gives no {' and no '.join(missing)}, which an encoder is trained with",
                to_set="set MIXTURE_OR_TASK_NAME to a task of masked language modeling",
            )
        lengths = lengths or {}
        length = lengths.get("inputs")
        if length is None or lengths.get("targets", length) != length:
            raise UserError(
                "TASK_FEATURE_LENGTHS",
                dict(lengths),
                "but an encoder's targets are as long as its inputs",
                "set both to the same number, such as {'inputs': 512, 'targets': 512}",
            )
        self.features = (*_REQUIRED, *(name for name in ("type_ids", _LABEL) if name in spec))
        super().__init__(dict.fromkeys(self.features, length), pack, trim, task)

    def add(self, examples: Mapping[str, np.ndarray]) -> None:
        """Add `n` examples: int32 [n, any length] of each feature, filled up with `filler`."""
        raised = {name: values + _RAISED for name, values in examples.items()}
        if _LABEL in raised:  # it stands at the first token, in a row as long as the others
            labels = np.where(raised["inputs"] > 0, _RAISED - 1, 0).astype(np.int32)
            labels[:, 0] = raised[_LABEL][:, 0]
            raised[_LABEL] = labels
        size = np.count_nonzero(raised["inputs"], axis=1)
        for name, values in raised.items():
            if not np.array_equal(np.count_nonzero(values, axis=1), size):
                raise UserError(
                    f"task {self._task}",
                    why=f"gives {name} that are not as long as its inputs",
                    to_set="let the last of its preprocessors return them so",
                )
        super().add(raised)

    def first(self, n: int) -> Arrays:
        """Return the first `n` complete rows: weights float32 [n, L], all else int32.

        Labels are [n, 1] in rows of one example, else [n, L], -1 where no example begins.
        """
        chosen = slice(np.searchsorted(self._row, n))
        laid = {
            name: concatenate(values[chosen], self._row[chosen], n)
            for name, values in self._examples.items()
        }
        _, segments, positions = laid["inputs"]
        batch: Arrays = {"encoder_segment_ids": segments, "encoder_positions": positions}
        for name, (values, _, _) in laid.items():
            values = np.where(segments > 0, values - _RAISED, -1 if name == _LABEL else 0)
            batch[_NAMES.get(name, name)] = values.astype(np.int32)
        batch["encoder_loss_weights"] = batch["encoder_loss_weights"].astype(np.float32)
        if _LABEL in batch and not self._pack:
            batch[_LABEL] = batch[_LABEL][:, :1]
        return batch


class EncoderFeatureConverter(seqio.FeatureConverter):
    """The converter of an encoder's features for seqio's own functions.

    The trainer makes the same rows without it (`t5x.input_pipeline.stream`), many at a time.
    """

    TASK_FEATURES: ClassVar = dict.fromkeys(_REQUIRED, _INT32)
    MODEL_FEATURES: ClassVar = {
        "encoder_input_tokens": _INT32,
        "encoder_target_tokens": _INT32,
        "encoder_loss_weights": seqio.FeatureConverter.FeatureSpec(tf.float32),
        "encoder_segment_ids": _INT32,
        "encoder_positions": _INT32,
    }
    PACKING_FEATURE_DTYPES: ClassVar = dict.fromkeys(MODEL_FEATURES, tf.int32)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]):
        """Return the length of each feature of a row."""
        return dict.fromkeys(self.MODEL_FEATURES, task_feature_lengths["inputs"])

    def __call__(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]):
        """Return a dataset of rows; examples that are longer are cut."""
        return self._convert_features(ds, task_feature_lengths)

    def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]):
        make = lambda: EncoderRows(ds.element_spec, task_feature_lengths, self.pack)
        like = make().first(0)
        signature = {k: tf.TensorSpec(v.shape[1:], v.dtype) for k, v in like.items()}

        def made() -> Iterator[Arrays]:
            rows = make()
            for examples in rows.examples(ds).as_numpy_iterator():
                rows.add(examples)
                yield from taken(rows)
            rows.end()
            yield from taken(rows)

        def taken(rows: EncoderRows) -> Iterator[Arrays]:
            count = rows.complete
            batch = rows.first(count)
            rows.drop(count)
            yield from ({name: values[i] for name, values in batch.items()} for i in range(count))

        return tf.data.Dataset.from_generator(made, output_signature=signature)
