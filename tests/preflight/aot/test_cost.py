"""Time and money follow from the compiler's figures, and the slowest bound decides."""

import dataclasses

import pytest

from fakes.fake_compiler import FIGURES
from preflight.aot import slices
from preflight.aot.cost import Price

V4_8 = slices.find("v4-8")


def test_the_slowest_bound_decides():
    found = Price(FIGURES, V4_8, steps=36_000)
    assert found.compiler_seconds == pytest.approx(0.1)
    assert found.arithmetic_seconds == pytest.approx(55e12 / (4 * 275e12))
    assert found.memory_seconds == pytest.approx(8 * 2**30 / 1228e9)
    assert found.steps_per_second == pytest.approx(10)
    assert found.mfu == pytest.approx(0.5)
    assert (found.hours, found.chip_hours) == pytest.approx((1.0, 4.0))
    assert found.tokens_per_second == pytest.approx(16 * 157 * 10)
    free = Price(dataclasses.replace(FIGURES, cycles=1), V4_8, steps=1)
    assert free.steps_per_second == pytest.approx(1 / free.roofline_seconds)
    assert free.mfu == pytest.approx(1.0)


def test_links_may_be_the_slowest():
    figures = dataclasses.replace(FIGURES, cycles=1, received=90e9)
    found = Price(figures, slices.find("v4-128"), 1)
    assert found.communication_seconds == found.roofline_seconds == pytest.approx(0.3)
    assert found.bound == "communication"
    assert Price(figures, V4_8, 1).communication_seconds == pytest.approx(0.9)


def test_a_core_of_two_has_half_the_chip_s_bandwidth():
    v3 = slices.find("v3-8")
    assert Price(FIGURES, v3, 1).memory_seconds == pytest.approx(8 * 2**30 / 450e9)


def test_used_memory_is_the_peak_and_the_program():
    assert FIGURES.used_gib == pytest.approx(4.1)
    assert FIGURES.activation_gib == pytest.approx(3.0)
    small = dataclasses.replace(FIGURES, peak_gib=0.5)  # arguments are always there
    assert (small.used_gib, small.activation_gib) == (pytest.approx(1.1), 0.0)
