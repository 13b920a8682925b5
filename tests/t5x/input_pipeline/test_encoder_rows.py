"""Rows of encoders hold examples end to end, whatever their ids; padding has segment 0."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

from fakes.refuses import refuses
from t5x.input_pipeline import encoder_rows
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.stream import TrainStream, eval_sets

TASK, UNFIT = "toy_masked_lm", "toy_masked_lm_unfit"
LENGTHS = {"inputs": 8, "targets": 8}
# Ids 0 and 1 are tokens here, as in RoBERTa.
EXAMPLES = [
    {"inputs": [0, 4, 2], "targets": [0, 7, 2], "loss_weights": [0, 1, 0], "label": 1},
    {"inputs": [0, 1, 9, 2], "targets": [0, 1, 9, 2], "loss_weights": [0, 1, 0, 0], "label": 0},
    {"inputs": [0, 5, 6, 4, 2], "targets": [0, 5, 6, 3, 2], "loss_weights": [0, 0, 0, 1, 0]}
    | {"label": 1},
]
TYPES = [[0, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1, 1]]


def dataset(split="train", shuffle_files=False, seed=None):
    def examples():
        for example, types in zip(EXAMPLES, TYPES, strict=True):
            label = {"next_sentence_label": [example["label"]], "type_ids": types}
            yield {**example, **label}

    names = ("inputs", "targets", "loss_weights", "type_ids", "next_sentence_label")
    signature = {name: tf.TensorSpec([None], tf.int32) for name in names}
    chosen = lambda: ({name: x[name] for name in names} for x in examples())
    return tf.data.Dataset.from_generator(chosen, output_signature=signature)


def add_tasks():
    if TASK in seqio.TaskRegistry.names():
        return
    feature = seqio.Feature(seqio.PassThroughVocabulary(16), add_eos=False)
    features = {"inputs": feature, "targets": feature}
    source = seqio.FunctionDataSource(dataset, ["train"], num_input_examples={"train": 3})
    seqio.TaskRegistry.add(TASK, source=source, preprocessors=[], output_features=features)
    bare = lambda ds: ds.map(lambda x: {k: x[k] for k in ("inputs", "targets")})
    seqio.TaskRegistry.add(UNFIT, source=source, preprocessors=[bare], output_features=features)


def config(task=TASK, pack=True, lengths=None):
    add_tasks()
    given = LENGTHS if lengths is None else lengths
    return DatasetConfig(task, given, "train", 2, shuffle=False, seed=0, pack=pack)


@pytest.mark.parametrize("pack", [False, True])
def test_an_evaluation_has_every_example_once_and_padding_counts_for_nothing(pack):
    sets = eval_sets(config(pack=pack), encoder_rows.EncoderFeatureConverter, (0, 2), 9)
    batches = sets[TASK]
    assert all(len(values) == 2 for batch in batches for values in batch.values())
    assert len(batches) == 2 - pack
    joined = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    assert joined["encoder_loss_weights"].sum() == len(EXAMPLES)
    is_filler = ~joined["encoder_segment_ids"].any(1)
    assert is_filler.sum() == 1 - pack
    assert (joined["next_sentence_label"][is_filler] == -1).all()
    labels = joined["next_sentence_label"]
    assert sorted(labels[labels >= 0].tolist()) == [0, 1, 1]


def first_batch(**how):
    stream = TrainStream(
        config(**how), encoder_rows.EncoderFeatureConverter, (0, 2), seed=0, shards=1
    )
    return next(stream)


def equal(found, **wanted):
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, name)


def test_packed_rows_hold_examples_end_to_end():
    found = first_batch()
    equal(
        found,
        encoder_input_tokens=[[0, 4, 2, 0, 1, 9, 2, 0], [0, 5, 6, 4, 2, 0, 4, 2]],
        encoder_target_tokens=[[0, 7, 2, 0, 1, 9, 2, 0], [0, 5, 6, 3, 2, 0, 7, 2]],
        encoder_loss_weights=[[0, 1, 0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0, 1, 0]],
        encoder_segment_ids=[[1, 1, 1, 2, 2, 2, 2, 0], [1, 1, 1, 1, 1, 2, 2, 2]],
        encoder_positions=[[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 2, 3, 4, 0, 1, 2]],
        encoder_type_ids=[[0, 0, 1, 0, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0, 0, 1]],
        next_sentence_label=[[1, -1, -1, 0, -1, -1, -1, -1], [1, -1, -1, -1, -1, 1, -1, -1]],
    )
    assert found["encoder_loss_weights"].dtype == np.float32
    assert found["encoder_input_tokens"].dtype == np.int32


def test_unpacked_rows_hold_one_example():
    equal(
        first_batch(pack=False),
        encoder_input_tokens=[[0, 4, 2, 0, 0, 0, 0, 0], [0, 1, 9, 2, 0, 0, 0, 0]],
        encoder_segment_ids=[[1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]],
        encoder_loss_weights=[[0, 1, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]],
        encoder_positions=[[0, 1, 2, 0, 0, 0, 0, 0], [0, 1, 2, 3, 0, 0, 0, 0]],
        next_sentence_label=[[1], [0]],
    )


@pytest.mark.parametrize("pack", [True, False])
def test_a_saved_position_continues_with_the_same_rows(tmp_path, pack):
    make = lambda: TrainStream(
        config(pack=pack), encoder_rows.EncoderFeatureConverter, (0, 2), seed=0, shards=1
    )
    stream = make()
    next(stream)
    stream.save(str(tmp_path))
    wanted = [next(stream) for _ in range(3)]
    again = make()
    again.restore(str(tmp_path))
    for batch in wanted:
        equal(next(again), **batch)


@pytest.mark.parametrize("pack", [True, False])
def test_the_converter_of_seqio_makes_the_same_rows(pack):
    converter = encoder_rows.EncoderFeatureConverter(pack=pack)
    rows = list(converter(dataset().repeat(2), LENGTHS).take(2).as_numpy_iterator())
    wanted = first_batch(pack=pack)
    for i, row in enumerate(rows):
        equal(row, **{name: values[i] for name, values in wanted.items()})
    # Iterations that run at the same time do not take each other's examples.
    made = converter(dataset().repeat(2), LENGTHS)
    for row, same in zip(made.as_numpy_iterator(), made.as_numpy_iterator(), strict=True):
        equal(row, **same)
    lengths = converter.get_model_feature_lengths(LENGTHS)
    assert lengths["encoder_positions"] == 8


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"task": UNFIT}, f"task {UNFIT}"),
        ({"lengths": {"inputs": 8, "targets": 4}}, "TASK_FEATURE_LENGTHS"),
    ],
)
def test_what_does_not_fit_an_encoder_is_refused(how, named):
    with refuses(named):
        first_batch(**how)


def test_features_of_other_lengths_are_refused():
    longer = {name: [1, 2] for name in ("inputs", "targets")} | {"loss_weights": [1]}
    ds = tf.data.Dataset.from_generator(
        lambda: [longer], output_signature=dict.fromkeys(longer, tf.TensorSpec([None], tf.int32))
    )
    rows = encoder_rows.EncoderRows(ds.element_spec, LENGTHS, pack=True, task="some")
    examples = next(rows.examples(ds).as_numpy_iterator())
    with refuses("task some"):
        rows.add(examples)
