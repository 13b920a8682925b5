"""Novels are held out entirely, finished stages are not repeated, and results are shown."""

import json

import pytest

from benchmarks import abilities
from benchmarks.abilities import FINETUNED_T5, NGRAMS, PLAIN, T5
from t5x.schedules import create_learning_rate_scheduler

MEASURES = {name: [0.5, 0.01, 100] for name in abilities.SHOWN}
RESULTS = [
    {"model": PLAIN, "diacritics": {"the bare text": 0.7}},
    {
        "model": NGRAMS,
        "measures": MEASURES | {"bits_per_byte": [2.068, 0.02, 9]},
        "diacritics": 0.9,
    },
    {"model": T5, "step": 1800, "measures": MEASURES},
    {"model": T5, "step": 1, "measures": {**MEASURES, "filled_in": [0.0, 0.0, 9]}},
    {"model": FINETUNED_T5, "start": 1, "diacritics": {"free": 0.25}},
    {"model": FINETUNED_T5, "start": 1800, "diacritics": {"free": 0.75}},
]


def test_no_novel_is_on_both_sides():
    records = [{"novel": f"ROM{i % 30:03}", "text": str(i)} for i in range(300)]
    parts = abilities.split(records)
    train, held_out = ({record["novel"] for record in part} for part in parts)
    assert held_out == {"ROM011", "ROM023"}
    assert train | held_out == {record["novel"] for record in records}
    assert not train & held_out
    assert sorted(int(r["text"]) for part in parts for r in part) == [*range(300)]


def test_steps_that_no_checkpoint_ends_are_refused(tmp_path):
    with pytest.raises(ValueError, match="--steps is 1850, but must be a multiple of 200"):
        abilities.pretrain(tmp_path, 1850)
    with pytest.raises(ValueError, match="are 1830 in all, but must be a multiple of 50"):
        abilities.pretrain_densely(tmp_path, 1800, 30)


def test_each_checkpoint_is_measured_where_it_was_trained(tmp_path):
    paths = abilities.measured(tmp_path, 800, 150)
    found = [str(path.relative_to(tmp_path)) for path in paths]
    assert found == [
        "pretrained/checkpoint_1",
        "pretrained/checkpoint_400",
        "pretrained/checkpoint_800",
        "dense/checkpoint_850",
        "dense/checkpoint_950",
    ]


def test_the_dense_rate_does_not_depend_on_the_steps_before_it_falls():
    rates = []
    for steps in (100, 400):
        flags = abilities.schedule(0.015, steps, 1800, warmup=20, halved=False)
        values = {name.rpartition(".")[2]: value for name, value in flags.items()}
        rate = create_learning_rate_scheduler(**values)
        rates.append([float(rate(1800 + step)) for step in (0, 10, 20, 69, 100)])
    until_it_falls = [0, 0.0075, 0.015, 0.015]
    assert rates == [pytest.approx([*until_it_falls, last], abs=1e-7) for last in (0, 0.015)]


def test_finished_stages_are_not_repeated(tmp_path, monkeypatch):
    done = []

    def stage(name, found):
        return lambda *_: done.append(name) or found

    results = tmp_path / "results.jsonl"
    checkpoints = [RESULTS[2] | {"step": 400}, RESULTS[3]]
    (tmp_path / "pretrained/checkpoint_400").mkdir(parents=True)
    monkeypatch.setattr(abilities, "measure_ngrams", stage("ngrams", RESULTS[1]))
    monkeypatch.setattr(abilities, "measure_plain", stage("plain", RESULTS[0]))
    monkeypatch.setattr(abilities, "pretrain", stage("pretrain", None))
    monkeypatch.setattr(abilities, "measure_checkpoints", stage("checkpoints", checkpoints))
    step = abilities.step_of
    tuned = lambda _, path, steps: done.append(step(path)) or RESULTS[4] | {"start": step(path)}
    monkeypatch.setattr(abilities, "measure_finetuned", tuned)
    abilities.run(tmp_path, results, 400, 0, 600)
    assert done[:4] == ["ngrams", "plain", "pretrain", "checkpoints"]
    assert sorted(done[4:]) == [1, 400]
    lines = results.read_text().splitlines()
    results.write_text("\n".join(lines[:-1]) + "\n")  # cut before the last stage
    last = done[-1]
    done.clear()
    abilities.run(tmp_path, results, 400, 0, 600)
    assert done == ["pretrain", last]  # which ends immediately
    assert len(abilities.read_results(results)) == len(lines) == len(RESULTS)


def test_interrupted_training_ends_the_command(tmp_path, monkeypatch):
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, RESULTS[:2])) + "\n")
    monkeypatch.setattr(abilities, "pretrain", lambda *_: None)
    with pytest.raises(SystemExit, match="checkpoint_400 is missing: training was interrupted"):
        abilities.run(tmp_path, tmp_path / "results.jsonl", 400, 0, 600)


def test_the_table_has_the_first_and_the_last_checkpoint():
    lines = list(abilities.table(RESULTS))
    assert lines[2].startswith("| T5, untrained | 0.50 ± 0.01 | 0.0 ± 0.0 % | 50.0 ± 1.0 % |")
    assert lines[3].startswith("| T5, 1,800 steps | 0.50 ± 0.01 | 50.0 ± 1.0 % |")
    assert lines[4].startswith("| n-grams | 2.07 ± 0.02 |")
    restored = [line.strip("| ").split(" | ") for line in lines[8:]]
    assert restored == [
        ["the bare text", "70.0%"],
        ["n-grams", "90.0%"],
        ["T5, fine-tuned without pretraining, free", "25.0%"],
        ["T5, fine-tuned, free", "75.0%"],
    ]


def test_the_picture_is_drawn(tmp_path):
    abilities.draw(json.loads(json.dumps(RESULTS)), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.png").stat().st_size > 5_000
