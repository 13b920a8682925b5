"""The text is checked and split by novels, a budget buys steps, and the best rate has all seeds."""

import dataclasses
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys

import pytest
import seqio

import gin
from benchmarks import contest
from benchmarks.contest import BATCH, INPUTS, PIECES, RESULTS, ROWS, Row, Trial
from evaluation import trials
from fakes import valid_run
from fakes.file_server import FileServer
from fakes.paths import MINI, ROOT
from fakes.refuses import refuses
from t5x.examples.t5 import network
from t5x.examples.t5gemma2 import network as gemma
from t5x.monitoring import event_log, flops

PAGE = ROOT / "docs" / "contest.md"
TEI = '<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><p>no text</p></teiHeader><text><body>'


def result_of(trial: Trial, value: float, **others) -> dict:
    """Return a line of results."""
    curve = [[1.0, value + 1], [2.0, value]]
    measured = {"value": value, "curve": curve, "steps": 1000, "parameters": 2, "lines": 3}
    return trial._asdict() | measured | {"commit": "abc"} | others


@pytest.fixture(autouse=True)
def forgotten_recipes():
    """Remove the tasks that a test has registered, and what its recipes bind."""
    yield
    gin.clear_config()
    if sys.modules.pop("contest_tasks", None):
        for objective in ("span_corruption", "ul2"):
            seqio.TaskRegistry.remove(f"contest_{objective}")


@pytest.fixture
def novels(tmp_path, monkeypatch):
    """Return a folder of 20 novels of text, whose checksums the contest has."""
    folder = tmp_path / "collection"
    folder.mkdir()
    records = (MINI / "train-00000-of-00004.jsonl").read_text().splitlines()
    lines = [json.loads(record)["text"] for record in records]
    sums = ""
    for i in range(20):
        name = f"ROM{i:03}.xml"
        body = "".join(f"<p>novel{i} {line}</p>" for line in lines[i::20])
        text = TEI + body.replace("&", "&amp;") + "</body></text></TEI>"
        (folder / name).write_text(text)
        sums += f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n"
    (tmp_path / "sums").write_text(sums)
    monkeypatch.setattr(contest, "CHECKSUMS", tmp_path / "sums")
    return folder


@pytest.fixture
def work(tmp_path):
    """Return a folder with the vocabulary of the contest."""
    (tmp_path / "work" / "claims").mkdir(parents=True)
    shutil.copy(ROOT / "benchmarks" / contest.VOCABULARY, tmp_path / "work")
    return tmp_path / "work"


def test_novels_are_fetched_and_checked_and_some_are_held_out_as_a_whole(novels, work):
    with FileServer(novels) as server:
        for _ in range(2):
            contest.main(["fetch", "--work", str(work), "--address", server.url])
        assert len(server.asked) == 20
    texts = {split: contest.texts_of(work, split) for split in ("train", "validation")}
    assert [*texts["validation"]] == ["ROM005", "ROM015"]
    assert len(texts["train"]) == 18
    for name, parts in [*texts["train"].items(), *texts["validation"].items()]:
        number = int(name[3:])
        words = " ".join(parts).split()
        assert {word for word in words if word.startswith("novel")} == {f"novel{number}"}
        assert "no text" not in " ".join(parts)
        assert all(len(part) >= contest.RECORD_CHARS for part in parts[:-1])
    hidden = contest.hidden(work)
    assert hidden == contest.hidden(work)
    assert {word for text in hidden for word in text.words if "novel" in word} == {
        "novel5",
        "novel15",
    }
    assert max(len(" ".join(text.words)) for text in hidden) <= contest.MAX_CHARS
    (work / "novels" / "ROM003.xml").write_text("other")
    with refuses(str(work / "novels" / "ROM003.xml")):
        contest.fetch(novels.as_uri(), work)


def test_a_budget_buys_the_steps_whose_flop_the_trainer_counts(work, monkeypatch):
    tasks = contest.TASKS.format(
        objectives=["span_corruption", "ul2"], work=work, vocabulary=work / contest.VOCABULARY
    )
    (work / "contest_tasks.py").write_text(tasks)
    monkeypatch.syspath_prepend(work)
    rows = [name for name in ROWS if "n-" not in name]
    with valid_run.gin_apart():
        counts = {name: contest.step_flops(Trial(name, 0.1, 0), work) for name in rows}
    sizes = {"emb_dim": 128, "num_heads": 4, "head_dim": 32, "mlp_dim": 256, "vocab_size": PIECES}
    layers = {
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "mlp_activations": ("gelu", "linear"),
    }
    config = network.T5Config(**sizes, **layers)
    expected = flops.step_flops(config, BATCH, INPUTS, 29)
    assert counts["T5 1.1, Muon"] == counts["T5 1.1, one head of 128"] == expected
    of_ul2 = counts["T5 1.1, UL2, one example a row"]
    assert of_ul2 == flops.step_flops(config, BATCH, INPUTS, 124)
    layers = {"num_encoder_layers": 5, "num_decoder_layers": 2}
    config = gemma.T5Gemma2Config(**sizes, **layers, num_kv_heads=4)
    assert counts["T5Gemma 2"] == flops.step_flops(config, BATCH, INPUTS, 29)
    assert counts["T5 1.1, encoder two thirds"] != expected
    assert int(contest.BUDGET / expected) > 200


def test_all_rates_come_first_then_the_seeds_of_the_best():
    name, budget = "T5 1.1, Muon", 1e9
    results, order = {}, []
    while pending := contest.next_trials([name], results, budget):
        order.append((pending[0].rate, pending[0].seed))
        results[pending[0]] = result_of(pending[0], abs(pending[0].rate - 0.21))
    assert order == [(0.1, 0), (0.2, 0), (0.4, 0), (0.2, 1), (0.2, 2)]
    assert contest.next_trials([name], results, 2 * budget)
    names = [name, "T5Gemma 2"]
    assert {(trial.row, trial.seed) for trial in contest.next_trials(names, {}, 1)} == {
        (row, 0) for row in names
    }
    del results[Trial(name, 0.2, 2, budget)]
    rows = [trial.row for trial in contest.next_trials(names, results, budget)]
    assert rows == ["T5Gemma 2"] * 3 + [name]


def test_all_rows_have_a_second_seed_before_any_has_a_third():
    names, budget = ["T5 1.1, Muon", "T5Gemma 2"], 1e9
    rates = [Trial(name, rate, 0, budget) for name in names for rate in ROWS[name].rates]
    results = {trial: result_of(trial, trial.rate) for trial in rates}
    pending = contest.next_trials(names, results, budget)
    assert [(trial.row, trial.seed) for trial in pending] == [
        (name, seed) for seed in (1, 2) for name in names
    ]


def test_a_run_has_all_trials_and_leaves_no_checkpoints(work, tmp_path, monkeypatch):
    path, name = tmp_path / "results.jsonl", "row"
    monkeypatch.setattr(contest, "ROWS", {name: Row((), (0.1, 0.2), seeds=(0, 1))})

    def run(trial, _):
        (work / "runs" / trial.name).mkdir(parents=True)
        return {"value": trial.rate}

    monkeypatch.setattr(contest, "result_of", run)
    contest.main(["run", "--work", str(work), "--results", str(path)])
    assert [(t.rate, t.seed) for t in trials.read(path, Trial)] == [(0.1, 0), (0.2, 0), (0.1, 1)]
    assert not [*(work / "runs").iterdir()]


@pytest.fixture
def failing(work, monkeypatch):
    """Return a function that trains a trial whose command fails, because it diverged or not."""
    monkeypatch.setattr(contest, "step_flops", lambda *_: 1e9)

    def train(diverged: bool) -> dict:
        def call(work, module, *arguments):
            folder = contest.bindings(trial, work, 1)["MODEL_DIR"]
            pathlib.Path(folder).mkdir(parents=True)
            log = event_log.EventLog(folder)
            log.write("start", step=0)
            log.write("failed", step=7, reason="a sentence", diverged=diverged)
            log.close()
            raise subprocess.CalledProcessError(1, module)

        monkeypatch.setattr(contest, "call", call)
        return contest.train(trial := Trial("T5 1.1, Muon", 0.4, 0), work)

    return train


def test_a_trial_that_diverges_is_the_worst_and_ends_no_worker(failing, tmp_path):
    name, budget = "T5 1.1, Muon", contest.BUDGET
    planned = [Trial(name, rate, 0) for rate in (0.4, 0.1, 0.2)]
    planned += [Trial(name, 0.2, seed) for seed in (1, 2)]
    diverged = {"lines": 3, "commit": "abc"} | failing(diverged=True)
    lines = [planned[0]._asdict() | diverged]
    lines += [result_of(trial, 3 - i / 10) for i, trial in enumerate(planned[1:])]
    path, picture = tmp_path / "results.jsonl", tmp_path / "picture.png"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = trials.read(path, Trial)
    assert not contest.next_trials([name], results, budget)
    assert any(
        f"| {name} | 2.800 ± 0.100 | 3 | 0.2" in row for row in contest.table(results, budget)
    )
    for trial in (planned[1], planned[4]):  # another rate, then a seed of the best
        results[trial] |= diverged
        assert [*contest.table(results, budget)]
        contest.draw(results, budget, picture)


def test_a_trial_that_fails_otherwise_ends_its_worker(failing):
    with pytest.raises(subprocess.CalledProcessError):
        failing(diverged=False)


def test_the_table_has_the_mean_and_the_spread_of_the_seeds(tmp_path):
    name, page = "T5 1.1, Adafactor of the recipe", tmp_path / "page.md"
    planned = [Trial(name, 0.25, seed) for seed in range(3)]
    planned += [Trial("T5Gemma 2", 0.1, 0), Trial("T5Gemma 2", 0.2, 0)]
    lines = [result_of(trial, 2 + 0.1 * i) for i, trial in enumerate(planned)]
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page.write_text("before\n\n| row | x |\n|---|---|\n| old | 1 |\n\nafter\n")
    picture = tmp_path / "picture.png"
    flags = ["table", "--results", str(results), "--page", str(page), "--png", str(picture)]
    contest.main(flags)
    rows = page.read_text().splitlines()
    assert f"| {name} | 2.100 ± 0.100 | 3 | 0.25, 1 of 1 tried | 1,000 | 2 | 3 | abc |" in rows
    assert "| T5Gemma 2 | 2.300 | 1 | 0.1, 2 of 3 tried | 1,000 | 2 | 3 | abc |" in rows
    assert "| T5 1.1, Muon | not run yet | | | | | | |" in rows
    assert "old" not in page.read_text()
    assert rows[0] == "before"
    assert rows[-1] == "after"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_page_has_the_table_of_the_results():
    assert "\n".join(contest.table(trials.read(RESULTS, Trial), contest.BUDGET)) in PAGE.read_text()


@pytest.mark.slow
def test_a_contest_is_run_to_its_end_and_continues_after_a_kill(novels, tmp_path, monkeypatch):
    work, results = tmp_path / "work", tmp_path / "results.jsonl"
    for name, value in {"BATCH": 8, "POINTS": 2, "PASSAGES": 10}.items():
        monkeypatch.setattr(contest, name, value)
    first, second, *_ = ROWS
    monkeypatch.setattr(contest, "ROWS", {
        first: dataclasses.replace(ROWS[first], seeds=(0, 1)), second: ROWS[second],
    })  # fmt: skip
    contest.main(["fetch", "--work", str(work), "--address", novels.as_uri()])
    flags = ["run", "--work", str(work), "--results", str(results), "--budget", "2e10"]
    train = contest.call

    def killed(work, module, *arguments):
        train(work, module, *arguments)
        raise KeyboardInterrupt  # after the last checkpoint, before it is measured

    monkeypatch.setattr(contest, "call", killed)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        contest.main(flags)
    assert not results.exists()
    assert [*(work / "runs").iterdir()]
    monkeypatch.setattr(contest, "call", train)
    contest.main(flags)
    lines = trials.read(results, Trial)
    assert [(trial.row, trial.seed) for trial in lines] == [(first, 0), (second, 0), (first, 1)]
    for line in lines.values():
        assert 0 < line["value"] < 20
    curve = next(iter(lines.values()))["curve"]
    assert curve[-1][0] <= 2e10
    assert len(curve) >= 2
    contest.main(flags)
    assert len(results.read_text().splitlines()) == 3
