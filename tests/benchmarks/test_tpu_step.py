"""All ways are timed where it runs, and what does not run is a line of the table."""

import json
import math
import subprocess
import sys

import pytest

from benchmarks import timing, tpu_step
from benchmarks.tpu_step import Row

PROGRAM = """
ENTRY %main (p: f32[]) -> f32[] {
  %a = f32[] add(%p, %p), backend_config={"estimated_cycles":"1050000"}
}
"""


def test_each_way_is_planned_without_and_with_options():
    rows = [(row.way, row.options, row.batch) for row in tpu_step.plan("v4", [32, 64])]
    ways = [(way, options) for way in ("plain", "ours") for options in (False, True)]
    assert rows == [(*way, batch) for batch in (32, 64) for way in ways]
    assert [row.way for row in tpu_step.plan(None, [8])] == ["plain", "ours"]


def fake_steps(monkeypatch, kind):
    def ours(request, options):
        if request.batch > 16:
            raise RuntimeError("RESOURCE_EXHAUSTED:\n  out of memory")
        timed = timing.Timed(lambda: 2.0 * request.batch * request.targets, 3.0, 0.5, PROGRAM)
        monkeypatch.setattr(
            timed, "turn", lambda _: timed.seconds.append(0.01 if options else 0.02)
        )
        timed.loss = timed.advance()
        return timed

    plain = lambda request, options: ours(request, {})
    monkeypatch.setattr(tpu_step, "WAYS", {"plain": plain, "ours": ours})
    monkeypatch.setattr(tpu_step, "generation", lambda _: kind)
    monkeypatch.setattr(tpu_step, "peak_flops", lambda _: 275e12)


def test_the_table_and_its_json(monkeypatch, tmp_path, capsys):
    fake_steps(monkeypatch, "v4")
    out = tmp_path / "runs" / "table.json"
    flags = ["--recipe", "t5_1_1/tiny", "--rows", "1", "4", "--steps", "4", "--out", str(out)]
    tpu_step.main(flags)  # on eight devices
    said = capsys.readouterr().out.splitlines()
    assert "step 2/8  plain, batch 8, options on" in said
    table = [line.split() for line in said if line.split()[0] in ("batch", "8", "32")]
    #        batch step options ms spread counted careful ratio MFU temp compile
    assert table[1][:8] == ["8", "plain", "off", "20.0", "0.0", "1.0", "1.0", "1.00"]
    assert table[4][:8] == ["8", "ours", "on", "10.0", "0.0", "1.0", "1.0", "2.00"]
    assert table[5] == ["32", "plain", "off", "RESOURCE_EXHAUSTED:", "out", "of", "memory"]
    found = json.loads(out.read_text())
    assert (found["devices"], found["options"]["xla_enable_async_all_gather"]) == (8, "true")
    row = Row(**found["rows"][3])
    assert (row.seconds, row.loss, row.temp_gib, row.refused) == (0.01, 2.0, 0.5, "")
    assert row.mfu == pytest.approx(2 * found["rows"][0]["mfu"])
    assert found["rows"][4]["refused"] == "RESOURCE_EXHAUSTED: out of memory"


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", tpu_step.OPTIONS)
def test_the_compiler_knows_the_options(kind):
    """It refuses a name that it does not know."""
    program = """
import os, sys
from preflight.aot import tpu_slices
os.environ.update(tpu_slices.ENVIRONMENT)
import jax
from benchmarks.tpu_step import OPTIONS
device = tpu_slices.find(sys.argv[1] + "-8").devices()[0]
here = jax.sharding.SingleDeviceSharding(device)
shape = jax.ShapeDtypeStruct((256, 256), "float32", sharding=here)
lowered = jax.jit(lambda x: x @ x).lower(shape)
lowered.compile(compiler_options=OPTIONS[sys.argv[1]])
try:
    lowered.compile(compiler_options={"xla_no_such_option": "true"})
except Exception as error:
    sys.exit("No such compile option" not in str(error))
sys.exit(2)
"""
    done = subprocess.run([sys.executable, "-c", program, kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
