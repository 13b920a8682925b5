"""Slices have the chips their names say, arranged as in their generation."""

import math
import os
import subprocess
import sys

import pytest

from preflight.aot import slices


@pytest.mark.parametrize(
    ("name", "chips", "shape"),
    [
        ("v2-8", 4, (2, 2)),
        ("v3-512", 256, (16, 16)),
        ("v4-8", 4, (2, 2, 1)),
        ("v4-32", 16, (2, 2, 4)),
        ("v4-512", 256, (4, 8, 8)),
        ("v5litepod-16", 16, (4, 4)),
        ("V5e-256", 256, (16, 16)),
        ("v5p-8", 4, (2, 2, 1)),
        ("v6e-4", 4, (2, 2)),
        ("tpu7x-8", 4, (2, 2, 1)),
    ],
)
def test_a_name_counts_cores_or_chips(name, chips, shape):
    found = slices.find(name)
    assert (found.chips, found.shape) == (chips, shape)


def test_every_name_is_found_and_every_shape_holds_its_chips():
    for name in slices.names():
        found = slices.find(name)
        assert found.name == name
        assert found.chips * found.chip.cores == int(name.split("-")[1])
        assert math.prod(found.shape) == found.chips


def test_clock_and_matrix_units_give_the_peak():
    # Matrix units a chip times cells of one: two FLOP a cycle and cell.
    cells = {"v2": 2 * 128**2, "v3": 4 * 128**2, "v4": 8 * 128**2, "v5e": 4 * 128**2}
    cells |= {"v5p": 8 * 128**2, "v6e": 4 * 256**2, "tpu7x": 8 * 256**2}
    assert cells.keys() == slices.CHIPS.keys()
    for name, count in cells.items():
        chip = slices.CHIPS[name]
        assert chip.peak_flops == pytest.approx(2 * count * chip.clock, rel=0.03)


def test_libtpu_describes_every_slice():
    program = (
        "from preflight.aot import slices\n"
        "for n in slices.names():\n"
        "    s = slices.find(n)\n"
        "    assert len(s.devices()) == s.chips * s.chip.devices, n\n"
    )
    environment = os.environ | slices.ENVIRONMENT
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("name", "links"),
    [("v4-8", 2), ("v4-64", 3), ("v4-128", 6), ("v5p-512", 6), ("v5e-64", 2), ("v5e-256", 4)],
)
def test_only_rings_have_two_links_a_side(name, links):
    tpu = slices.find(name)
    assert tpu.link_bandwidth == pytest.approx(links * tpu.chip.link)
    assert slices.find("v5e-1").link_bandwidth == 0
