"""The loss is drawn as a PNG."""

import struct

from fakes import fake_runs
from report import __main__ as entry_point


def test_a_picture_of_the_loss(tmp_path):
    folder, out = fake_runs.complete(tmp_path / "tiny"), tmp_path / "new/loss.png"
    assert entry_point.main([str(folder), "--png", str(out)]) == 0
    header = out.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", header[16:]) == (840, 420)
    assert not list(tmp_path.glob("*.html"))
