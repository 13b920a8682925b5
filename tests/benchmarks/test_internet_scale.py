"""The table of docs/pods.md is what the script prints, and follows from its inputs."""

import json

import pytest

from benchmarks import internet_scale
from fakes.paths import ROOT
from tasks.languages import table

RESULTS = json.loads(internet_scale.RESULTS.read_text())


def test_the_documentation_has_what_the_script_prints():
    page = (ROOT / "docs/pods.md").read_text()
    assert internet_scale.table(RESULTS, table.find("ron_Latn"), internet_scale.PRICE) in page


def test_the_simulation_agrees_with_the_formula():
    found = RESULTS["simulated"]
    assert found["hosts"] > 1
    assert found["full"] == 1.0, "padding would hold no text"
    for name in ("requests_a_mtoken", "bytes_a_token"):
        assert found[name] == pytest.approx(found[f"expected_{name}"], rel=0.1)
    assert found["start"]["footer"] == 2 * (internet_scale.SHARDS + 1)


def test_a_slice_that_was_not_compiled_needs_what_the_next_smaller_one_needs():
    compiled = {
        "v4-8": {"rows": 128, "steps_per_second": 5.0},
        "v4-32": {"rows": 512, "steps_per_second": 4.0},
    }
    assert internet_scale.rows_a_second("v4-8", compiled) == (5.0, 640.0, True)
    assert internet_scale.rows_a_second("v4-16", compiled) == (5.0, 640.0, False)
    assert internet_scale.rows_a_second("v4-2048", compiled) == (4.0, 512.0, False)


def test_the_least_plan_is_named():
    assert internet_scale.plan_of(5_000) == "free"
    assert internet_scale.plan_of(5_001) == "PRO"
    assert internet_scale.plan_of(1e6) == "a mirror"


def test_hosts_with_one_shard_open_one_file_and_one_to_check():
    assert internet_scale.start_requests(1, 13.0) == 13 + 2 * 9 + 16
    assert internet_scale.start_requests(256, 13.0) == 256 * (13 + 4 + 2)


def test_what_a_file_holds_is_counted_from_its_footer(monkeypatch):
    import real_size

    monkeypatch.setattr(real_size, "ROW_GROUPS", 20)
    found, simulated = internet_scale.expected(real_size.parquet_file()), RESULTS["simulated"]
    assert found["documents_a_group"] == simulated["documents_a_group"]
    for name in ("expected_requests_a_mtoken", "expected_bytes_a_token"):
        assert found[name] == pytest.approx(simulated[name], rel=0.2)
