"""Results are kept, shown, and enter a run."""

import json
import math
import re

from evaluation import results

MODEL = {
    "name": "a<b", "path": "/a", "step": 1000, "parameters": 2_100_000, "bytes_per_token": 3.456,
    "objective": "span_corruption",
    "measures": {"bits_per_byte": [1.5, 0.01, 900], "filled_in": [0.25, 0.0125, 400],
                 "minimal_pairs": [float("nan"), float("nan"), 0]},
}  # fmt: skip


def test_the_table_has_the_measures_there_are():
    encoder = MODEL | {"step": None, "measures": {}, "objective": "masked_lm"}
    lines = results.table([MODEL, encoder]).splitlines()
    assert lines[0].split(" | ")[3:] == ["bits a byte", "words filled in", "minimal pairs |"]
    assert lines[2] == ("| a\\<b, step 1,000 | 2.1 M | 3.46 | 1.500 ± 0.010 | 25.0% ± 1.2% | – |")
    assert lines[3] == "| a\\<b, by masks | 2.1 M | 3.46 | – | – | – |"


def test_a_run_keeps_the_measures_by_step(tmp_path):
    add = lambda step, value: results.add_to_run(
        tmp_path, "evaluation_ron_Latn", step, {"bits": value, "none": math.nan}
    )
    add(200, 1.5)
    add(100, 2.0)
    add(200, 1.25)
    path = tmp_path / "inference_eval" / "evaluation_ron_Latn-metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [{"step": 100, "bits": 2.0}, {"step": 200, "bits": 1.25}]
    results.add_to_run(tmp_path, "evaluation_ron_Latn", 100, {"pairs": 0.5})
    first, _ = path.read_text().splitlines()
    assert json.loads(first) == {"step": 100, "bits": 2.0, "pairs": 0.5}


def test_figures_of_other_texts_have_another_name():
    settings = {"language": "ron_Latn", "text": "held out.jsonl", "text_sha256": "1", "without": []}
    name = results.series(settings)
    assert re.fullmatch("evaluation_ron_Latn_held_out_[0-9a-f]{6}", name)
    assert results.series(settings | {"without": ["pairs"]}) == name
    assert results.series(settings | {"text_sha256": "2"}) != name
    assert results.series(settings | {"text": None}).startswith("evaluation_ron_Latn_fineweb2_")
