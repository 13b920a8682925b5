"""seqio's feature converters, called without autograph.

Autograph rewrites the source of every function of a dataset, which takes a second for each call of
a converter. Only a function that branches on tensors needs it.
"""

from collections.abc import Mapping
from typing import Any

import seqio
import tensorflow as tf

from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter

WITHOUT_BRANCHES = (seqio.EncDecFeatureConverter, EncoderFeatureConverter)


class WithoutAutograph:
    """A feature converter without autograph, if its type does not need it."""

    def __init__(self, converter: Any):
        self._converter = converter
        self._convert = converter
        if type(converter) in WITHOUT_BRANCHES:
            self._convert = tf.autograph.experimental.do_not_convert(converter)

    def __call__(
        self, dataset: tf.data.Dataset, task_feature_lengths: Mapping[str, int] | None
    ) -> tf.data.Dataset:
        """Return the dataset with the features of the model."""
        return self._convert(dataset, task_feature_lengths)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._converter, name)
