"""Loss curves are drawn as a PNG."""

import struct

from t5x.monitoring import loss_picture


def test_the_picture_shows_each_curve(tmp_path):
    path, other = tmp_path / "new" / "loss.png", tmp_path / "other.png"
    train = loss_picture.Curve("train", [1, 2], [8.0, 7.0])
    loss_picture.draw([train], "tiny", path)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (840, 420)
    loss_picture.draw([train, train._replace(losses=[8.0, 6.0], dashed=True)], "tiny", other)
    assert other.read_bytes() != data
