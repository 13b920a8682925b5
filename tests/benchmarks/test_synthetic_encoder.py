"""The batch that times an encoder's step."""

import numpy as np

from benchmarks.synthetic_encoder import batch_shapes, synthetic_batch


def test_a_batch_has_the_shapes_that_the_step_is_compiled_for():
    batch, shapes = synthetic_batch(3, 100), batch_shapes(3, 100)
    assert {k: (x.shape, x.dtype) for k, x in batch.items()} == {
        k: (x.shape, x.dtype) for k, x in shapes.items()
    }


def test_a_row_has_three_texts_with_positions_from_0_and_padding():
    batch = synthetic_batch(1, 100)
    segments, positions = (batch[f"encoder_{k}"][0] for k in ("segment_ids", "positions"))
    assert np.unique(segments).tolist() == [0, 1, 2, 3]
    assert segments[-1] == 0
    for segment in (1, 2, 3):
        places = positions[segments == segment]
        np.testing.assert_array_equal(places, np.arange(len(places)))
    assert batch["encoder_input_tokens"][0, -1] == 0
    assert batch["encoder_loss_weights"][0, segments == 0].sum() == 0
