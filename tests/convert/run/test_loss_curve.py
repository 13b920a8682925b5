"""Losses are read from a run's TensorBoard files, by the folder that logged them."""

import json
import struct

from tensorboard.summary.writer.event_file_writer import EventFileWriter

from convert.run import loss_curve


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


def test_the_command_prints_each_validation_split(tmp_path, capsys):
    write_events(tmp_path / "train", [(1, "loss", 8.0), (3, "loss", 7.5)])
    write_events(tmp_path / "training_eval" / "mini", [(2, "loss", 7.75), (1000, "loss", 5.5)])
    loss_curve.main([str(tmp_path)])
    line = "  7.75 at step 2, 5.50 at step 1,000: 2.25 less\n"
    assert capsys.readouterr().out == line


def test_evaluations_are_the_last_metrics_of_each_task_up_to_the_checkpoint(tmp_path):
    folder = tmp_path / "inference_eval"
    folder.mkdir()
    lines = ['{"step": 1, "f1": 0.5}', '{"step": 2, "f1": 0.75, "text": "x", "nan": NaN}']
    lines += ['{"step": 3, "f1": 0.9}', '{"step": 4, "f']
    (folder / "a.b-metrics.jsonl").write_text("\n".join(lines))
    (folder / "a.b-000002.jsonl").write_text('{"step": 9, "f1": 1.0}')
    assert loss_curve.evaluations(tmp_path, up_to=2) == {"a.b": (2, {"f1": 0.75})}
    assert loss_curve.evaluations(tmp_path) == {"a.b": (3, {"f1": 0.9})}
    assert loss_curve.evaluations(tmp_path, up_to=0) == {}
    assert loss_curve.evaluations(tmp_path / "absent") == {}


def test_the_last_step_counts_in_whatever_order_checkpoints_were_evaluated(tmp_path):
    (tmp_path / "inference_eval").mkdir()
    values = ((2, 0.5), (3, 0.6), (3, 0.7), (1, 0.1))
    lines = [json.dumps({"step": step, "f1": f1}) for step, f1 in values]
    (tmp_path / "inference_eval" / "a-metrics.jsonl").write_text("\n".join(lines))
    assert loss_curve.evaluations(tmp_path) == {"a": (3, {"f1": 0.7})}


def test_figures_of_a_pretrained_run_do_not_make_it_a_fine_tuned_one(tmp_path):
    assert not loss_curve.was_fine_tuned(tmp_path)
    (tmp_path / "inference_eval").mkdir()
    for prefix in loss_curve.OF_PRETRAINED:
        (tmp_path / "inference_eval" / f"{prefix}ron_Latn-metrics.jsonl").touch()
    assert not loss_curve.was_fine_tuned(tmp_path)
    (tmp_path / "inference_eval" / "topic-002000.jsonl").touch()
    assert loss_curve.was_fine_tuned(tmp_path)


def test_a_folder_that_lists_itself_is_read_once(tmp_path):
    """Some clients list a folder among its own entries where an object marks it."""

    class Listed(type(tmp_path)):
        def iterdir(self):
            yield self
            yield from super().iterdir()

    write_events(tmp_path / "train", [(1, "loss", 8.0)])
    assert len(loss_curve.event_files(Listed(tmp_path))) == 1
