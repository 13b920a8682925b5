"""Converters that autograph leaves as they are."""

import seqio
import tensorflow as tf
from tensorflow.python.autograph.impl import api

from t5x.input_pipeline.feature_converters import WithoutAutograph

LENGTHS = {"inputs": 4, "targets": 3}


class Branching(seqio.EncDecFeatureConverter):
    """A converter whose function branches on a tensor."""

    def _convert_example(self, features):
        if tf.reduce_any(features["inputs"] > 5):
            features = {**features, "inputs": features["inputs"] + 1}
        return super()._convert_example(features)


def dataset() -> tf.data.Dataset:
    examples = {"inputs": [[5, 6, 1]], "targets": [[7, 1]]}
    return tf.data.Dataset.from_tensor_slices(examples)


def rows(converter) -> list:
    made = converter(dataset(), LENGTHS)
    return [{k: v.tolist() for k, v in row.items()} for row in made.as_numpy_iterator()]


def test_rows_are_those_of_seqio_without_a_conversion(monkeypatch):
    expected = rows(seqio.EncDecFeatureConverter(pack=False))
    converted = []
    monkeypatch.setattr(api, "_convert_actual", lambda *args: converted.append(args))
    assert rows(WithoutAutograph(seqio.EncDecFeatureConverter(pack=False))) == expected
    assert not converted


def test_a_converter_of_another_type_may_branch_on_tensors():
    (row,) = rows(WithoutAutograph(Branching(pack=False)))
    assert row["encoder_input_tokens"] == [6, 7, 2, 1]


def test_other_attributes_are_the_converters():
    converter = WithoutAutograph(seqio.EncDecFeatureConverter(pack=False))
    assert converter.pack is False
    assert converter.get_model_feature_lengths(LENGTHS)["decoder_target_tokens"] == 3
