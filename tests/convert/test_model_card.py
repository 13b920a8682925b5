import struct

import pytest
import yaml
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from convert import model_card
from convert.run import loss_curve
from fakes.convert_fakes import FAMILIES

PROOF = {"largest_difference": 2e-6, "largest_logit": 5.3}


def page(gin=None, curves=None, **changes):
    facts = {
        "steps": (300,),
        "family": "t5",
        "parameters": 12345,
        "dtype": "float32",
        "proof": PROOF,
        "tokenizer": True,
        "metadata": {"language": (), "license": None, "datasets": ()},
    }
    files = ("flax_model.msgpack", "model.safetensors")
    record = facts | changes
    sizes = FAMILIES["t5_1_1"]
    return model_card.ModelCard("ro_t5x_tiny", sizes, record, files, gin, curves or {}).text()


def metadata(text):
    _, front, _ = text.split("---\n", 2)
    return yaml.safe_load(front)


def test_metadata_is_what_was_given_and_measured():
    given = {"language": ("ro",), "license": "cc0-1.0", "datasets": ("user/corpus",)}
    found = metadata(page(metadata=given, curves={"train": [(100, 5.5), (300, 4.25)]}))
    assert found["language"] == ["ro"]
    assert found["license"] == "cc0-1.0"
    assert found["datasets"] == ["user/corpus"]
    (result,) = found["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == 4.25
    assert "step 300" in result["metrics"][0]["name"]


def test_nothing_is_claimed_that_is_not_known():
    found = metadata(page())
    assert not {"language", "license", "datasets", "model-index"} & found.keys()


def test_the_body_says_steps_proof_loss_and_gin():
    text = page(curves={"train": [(100, 5.5), (300, 4.25)]}, gin="TRAIN_STEPS = 300\n")
    assert "after 300 steps" in text
    assert "2.0e-06" in text
    assert "| 100 | 5.5000 |" in text
    assert "TRAIN_STEPS = 300" in text
    assert "the mean of steps 100, 300" in page(steps=(100, 300))
    assert "Rounding the weights" in page(proof=PROOF | {"largest_difference_from_float32": 0.01})


def write_events(folder, points):
    """What clu's writer leaves: scalars as tensors."""
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2

    writer = EventFileWriter(str(folder))
    for step, tag, value in points:
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT)
        if step % 2:
            tensor.float_val.append(value)
        else:
            tensor.tensor_content = struct.pack("<f", value)
        entry = summary_pb2.Summary.Value(tag=tag, tensor=tensor)
        summary = summary_pb2.Summary(value=[entry])
        writer.add_event(event_pb2.Event(step=step, summary=summary))
    writer.close()


def test_the_curve_is_read_by_folder_up_to_the_checkpoint(tmp_path):
    points = [(1, "loss", 8.0), (2, "loss", 7.5), (3, "accuracy", 0.1), (4, "loss", 7.0)]
    write_events(tmp_path / "train", points)
    write_events(tmp_path / "training_eval" / "mini", [(2, "loss", 7.75)])
    write_events(tmp_path / "checkpoint_2" / "odd", [(2, "loss", 1.0)])
    found = loss_curve.loss_curve(tmp_path, up_to=3)
    assert found == {"train": [(1, 8.0), (2, 7.5)], "training_eval/mini": [(2, 7.75)]}


def test_a_cut_event_file_gives_what_it_has(tmp_path):
    write_events(tmp_path / "train", [(1, "loss", 8.0), (3, "loss", 7.5)])
    (path,) = loss_curve.event_files(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    assert loss_curve.loss_curve(tmp_path) == {"train": [(1, 8.0)]}


@pytest.mark.parametrize("count", [1, 12, 13, 500])
def test_long_curves_are_thinned_and_keep_their_ends(count):
    points = [(step, 1.0) for step in range(count)]
    found = loss_curve.thinned(points)
    assert len(found) <= 12
    assert found[0] == points[0]
    assert found[-1] == points[-1]
