"""What is published names no path of the machine that trained it."""

import pytest

from convert.run import published
from t5x.monitoring import metric_writers
from t5x.monitoring.event_files import read_events


@pytest.mark.parametrize(
    ("line", "published_line"),
    [
        ("MODEL_DIR = '/home/me/runs/tiny'", "MODEL_DIR = '…/tiny'"),
        ('X.path = "~/my data/train.model"', 'X.path = "…/train.model"'),
        ("X.files = '/a/b/*.jsonl,/c/d.csv'", "X.files = '…/*.jsonl,…/d.csv'"),
        ("X.files = 'train=/a/b.jsonl'", "X.files = 'train=…/b.jsonl'"),
        ("    'file:///a/b/c'", "    '…/c'"),
        ("# include '/home/me/a.gin'", "# include '…/a.gin'"),
        # What is no path of this machine stays as it is.
        ("X.path = 'gs://bucket/a/b'", "X.path = 'gs://bucket/a/b'"),
        ("X.path = 'data/ro_mini/ro_mini.model'", "X.path = 'data/ro_mini/ro_mini.model'"),
        ("train/utils.DatasetConfig.split = 'a/b'", "train/utils.DatasetConfig.split = 'a/b'"),
        ("X.rule = @a/b.c()", "X.rule = @a/b.c()"),
        ("X.half = 1/2", "X.half = 1/2"),
    ],
)
def test_absolute_paths_are_cut_to_their_last_part(line, published_line):
    text = f"A = 1\n{line}\nB = 2\n"
    assert published.without_local_paths(text) == f"A = 1\n{published_line}\nB = 2\n"


def test_events_keep_their_scalars_and_lose_their_texts(tmp_path):
    writer = metric_writers.TensorBoardWriter(str(tmp_path), "train")
    writer.write_scalars(1, {"loss": 8.0})
    writer.write_texts(1, {"gin": "MODEL_DIR = /home/me"})
    writer.write_scalars(2, {"loss": 7.0, "accuracy": 0.5})
    writer.close()
    (path,) = (tmp_path / "train").iterdir()
    before = path.read_bytes()
    after = published.scalars_only(before)
    assert b"/home/me" in before
    assert b"/home/me" not in after
    assert read_events(after) == read_events(before)
    assert read_events(after).scalars["loss"].values == [8.0, 7.0]
    assert published.scalars_only(after) == after
