"""The hours in the table of recipes are those that preflight counted, or follow from FLOP."""

import math
import re

import pytest

from fakes import valid_run
from fakes.pages import section
from preflight.aot import recipe, recipe_step
from t5x.monitoring import flops

PART = section("docs/gpus.md", "How long")
MUON = float(re.search(r"([\d.]+) times as much time with", PART)[1])
SHARE = float(re.search(r"at ([\d.]+) % of the peak", PART)[1]) / 100
# By GPU: peak in TFLOP/s, hours and steps in a day.
GPUS = re.findall(r"^\| (.*) GB \| (\d+) \| \d \| ([\d.]+) \| ([\d,]+) \|$", PART, re.M)
A100 = 312e12


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[\d.]+", text)]


@pytest.fixture(scope="module")
def rows():
    """The last cell of each row by the names of its recipes."""
    cells = {}
    for line in section("README.md", "Recipes").splitlines():
        if names := re.findall(r"`(\w+)`", line.split("|")[1] if line[:3] == "| `" else ""):
            begin = names[0].rpartition("_")[0]
            names = [begin + name if name[0] == "_" else name for name in names]
            cells[tuple(names)] = line.split("|")[-2].strip()
    return cells


@pytest.fixture(scope="module")
def counted():
    """The hours on a v4-8 by recipe, as preflight has counted them."""
    hours, name = {}, ""
    for line in section("docs/preflight.md", "The recipes on two slices").splitlines():
        if line[:1] != "|":
            continue
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        name = cells[0].strip("`") or name
        if cells[1] == "v4-8":
            hours[name] = float(cells[6].replace(",", ""))
    return hours


def flop_and_steps(name):
    with valid_run.gin_apart():
        run = recipe.load(recipe.Recipe((f"gin/{name}.gin",)))
        path = run.checkpoint_cfg.restore.path if run.checkpoint_cfg.restore else ""
        before = int(path.rpartition("_")[2]) if path else 0
        return flops.batch_flops(run.model, recipe_step.batch_shapes(run)), run.total_steps - before


def test_every_recipe_says_how_long_it_takes(rows):
    assert len(rows) > 10
    for names, cell in rows.items():
        assert re.search(r"\d( busy)? (h|s|minutes|core-minutes|cores)", cell), names


def test_counted_hours_are_preflights(rows, counted):
    compared = set()
    for names, cell in rows.items():
        if match := re.match(r"([\d, and]+) h on a v4-8", cell):
            pairs = list(zip(names, numbers(match[1]), strict=False))
            assert pairs == [(name, counted[name]) for name, _ in pairs]
            compared |= {name for name, _ in pairs}
    assert compared == counted.keys()


def test_hours_of_later_phases_follow_from_flop(rows, counted):
    (names,) = [names for names in rows if "ro_modernbert_long" in names]
    first, *later = map(flop_and_steps, names)
    hours = numbers(rows[names].partition("≈")[2])
    for (flop, steps), time in zip(later, hours, strict=True):
        share = flop * steps / math.prod(first)
        assert time == pytest.approx(share * counted[names[0]], rel=0.05)


def test_hours_of_muon_are_a_share_of_those_without_it(rows, counted):
    (names,) = [names for names in rows if "ro_mt5x_large_fast" in names]
    hours = numbers(rows[names].partition("≈")[2])
    for name, time in zip(names[1:], hours, strict=True):
        slow = counted[name.removesuffix("_fast")]
        assert time == pytest.approx(0.7 * MUON * slow, rel=0.03)


@pytest.mark.parametrize("first", ["ro_diacritics_base", "summarize_small", "quality_tiny"])
def test_hours_of_fine_tuning_follow_from_flop(first, rows):
    (names,) = [names for names in rows if names[0] == first]
    times, unit = re.search(r"([\d., and]+) (h|minutes) on an A100", rows[names]).groups()
    times = numbers(times)
    for name, time in zip(names[-len(times) :], times, strict=True):
        flop, steps = flop_and_steps(name)
        seconds = steps * flop / SHARE / A100
        assert time == pytest.approx(seconds / {"h": 3600, "minutes": 60}[unit], rel=0.1)


def test_hours_of_the_recipe_of_a_day_follow_from_flop(rows):
    flop, total = flop_and_steps("ro_t5x_base_day")
    assert f"A step has {flop / 1e12:.1f} TFLOP" in PART
    assert len(GPUS) == 5
    for gpu, peak, hours, steps in GPUS:
        seconds = flop * MUON / (SHARE * float(peak) * 1e12)
        assert float(hours) == pytest.approx(total * seconds / 3600, rel=0.03), gpu
        assert float(steps.replace(",", "")) == pytest.approx(86_400 / seconds, rel=0.01), gpu
    hours = {gpu.split(",")[0]: f"{hours} h" for gpu, _, hours, _ in GPUS}
    cell = rows["ro_t5x_base_day",]
    assert cell == f"≈ {hours['RTX 4090']} on an RTX 4090, {hours['A100']} on an A100"
