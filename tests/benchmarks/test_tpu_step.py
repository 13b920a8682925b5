"""All ways are timed where it runs, and what does not run is a line of the table."""

import json
import math

import pytest

from benchmarks import timing, tpu_step
from benchmarks.tpu_step import Row

PROGRAM = """
ENTRY %main (p: f32[]) -> f32[] {
  %a = f32[] add(%p, %p), backend_config={"estimated_cycles":"1050000"}
}
"""


def fake_steps(monkeypatch, kind):
    def ours(request, seconds=0.01):
        if request.batch > 16:
            raise RuntimeError("RESOURCE_EXHAUSTED:\n  out of memory")
        timed = timing.Timed(lambda: 2.0 * request.batch * request.targets, 3.0, 0.5, PROGRAM)
        monkeypatch.setattr(timed, "turn", lambda _: timed.seconds.append(seconds))
        timed.loss = timed.advance()
        return timed

    plain = lambda request: ours(request, 0.02)
    monkeypatch.setattr(tpu_step, "WAYS", {"plain": plain, "ours": ours})
    monkeypatch.setattr(tpu_step, "generation", lambda _: kind)
    monkeypatch.setattr(tpu_step, "peak_flops", lambda _: 275e12)


def test_the_table_and_its_json(monkeypatch, tmp_path, capsys):
    fake_steps(monkeypatch, "v4")
    out = tmp_path / "runs" / "table.json"
    flags = ["--recipe", "t5_1_1/tiny", "--rows", "1", "4", "--steps", "4", "--out", str(out)]
    tpu_step.main(flags)  # on eight devices
    output = capsys.readouterr().out.splitlines()
    assert "step 2/4  ours, batch 8" in output
    table = [line.split() for line in output if line.split()[0] in ("batch", "8", "32")]
    #        batch step ms spread counted careful ratio MFU temp compile
    assert table[1][:7] == ["8", "plain", "20.0", "0.0", "1.0", "1.0", "1.00"]
    assert table[2][:7] == ["8", "ours", "10.0", "0.0", "1.0", "1.0", "2.00"]
    assert table[3] == ["32", "plain", "RESOURCE_EXHAUSTED:", "out", "of", "memory"]
    results = json.loads(out.read_text())
    assert results["devices"] == 8
    row = Row(**results["rows"][1])
    assert (row.seconds, row.loss, row.temp_gib, row.refused) == (0.01, 2.0, 0.5, "")
    assert row.mfu == pytest.approx(2 * results["rows"][0]["mfu"])
    assert results["rows"][2]["refused"] == "RESOURCE_EXHAUSTED: out of memory"


@pytest.mark.slow
def test_a_step_is_timed_here(tmp_path, capsys):
    sizes = "vocab_size=64 emb_dim=8 head_dim=4 num_heads=2 mlp_dim=8 num_encoder_layers=1"
    out = tmp_path / "table.json"
    flags = ["--set", *sizes.split(), "num_decoder_layers=1", "--rows", "1", "--inputs", "8"]
    flags += ["--targets", "4", "--steps", "2", "--recipe", "t5_1_1/tiny", "--out", str(out)]
    tpu_step.main(flags)
    rows = [Row(**row) for row in json.loads(out.read_text())["rows"]]
    assert [(row.way, row.refused) for row in rows] == [("plain", ""), ("ours", "")]
    assert all(row.seconds > 0 and row.counted is None for row in rows)
    assert all(math.isfinite(row.loss) for row in rows)  # of different random parameters
