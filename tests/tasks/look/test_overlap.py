"""Shares that are planted in corpora are found, and what was not read is not judged."""

import json
import random
import re

import pytest
import seqio
import tensorflow as tf

import gin
from common.tables import NOT_CHECKED, OK, WARNING
from fakes.refuses import refuses
from t5x.cli import dry_run
from t5x.input_pipeline.config import DatasetConfig
from tasks import corpora, mixtures, pairs, vocabularies
from tasks.corpus.source import CorpusSource
from tasks.look import lines, overlap, sample
from tasks.look.__main__ import main
from tasks.rows import Rows

NAMES = ("overlap_one", "overlap_other")
RANDOM = random.Random(0)
WORDS = ["".join(RANDOM.choices("abcdefghij", k=RANDOM.randint(3, 8))) for _ in range(3_000)]


def documents(n, words=40):
    return [" ".join(RANDOM.choices(WORDS, k=words)) for _ in range(n)]


TEXTS = documents(2_000)


@pytest.fixture
def write(tmp_path):
    """Return a function that registers a task for each list of texts."""

    def make(*lists):
        for name, texts in zip(NAMES, lists, strict=True):
            rows = (json.dumps({"text": text}) for text in texts)
            (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
            source = CorpusSource(files={"train": str(tmp_path / f"{name}.jsonl")})
            corpora.add(name, source, vocabularies.ro_mini_model)
        return [seqio.TaskRegistry.get(name) for name in NAMES]

    yield make
    for name in NAMES:
        seqio.TaskRegistry.remove(name)


def look(tasks):
    """Return the share of the first task in the second by the line, and the line."""
    line = overlap.look(tasks, "train")
    percent = re.search(r"([\d.]+)% of overlap_one in overlap_other", line.figure)[1]
    return float(percent) / 100, line


def planted(share, size=2_000):
    """Return texts with this share of TEXTS, in another typography, and others."""
    n = int(share * size)
    texts = [text.upper().replace(" ", ", ", 3) + "…" for text in TEXTS[:n]]
    texts += documents(size - n)
    RANDOM.shuffle(texts)
    return texts


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("kept", [1 << 20, 20_000])
def test_a_planted_share_is_found_within_a_third(write, share, kept, monkeypatch):
    monkeypatch.setattr(overlap, "KEPT", kept)
    tasks = write(TEXTS, planted(share))
    estimate, line = look(tasks)
    assert estimate == pytest.approx(share, rel=1 / 3)
    assert line.verdict == WARNING
    assert estimate == share or kept < 1 << 20
    assert "such as “" in line.figure
    assert all(len(overlap.sketch(task, "train").hashes) <= kept for task in tasks)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_share_of_a_corpus_is_estimated_by_the_part_that_is_read(write, share, monkeypatch):
    tasks = write(TEXTS, planted(share))
    monkeypatch.setattr(overlap, "reading", lambda: 0.3 * sum(map(len, TEXTS)))
    assert overlap.sketch(tasks[1], "train").share == pytest.approx(0.3, rel=0.1)
    estimate, _ = look(tasks)
    assert estimate == pytest.approx(share, rel=1 / 3)


def test_corpora_with_nothing_in_common_are_told_from_those_that_are_hardly_read(write):
    tasks = write(TEXTS, documents(2_000))
    line = overlap.look(tasks, "train")
    assert (line.verdict, line.to_set) == (OK, "")
    assert "less than 0.5% of each" in line.figure
    with gin.unlock_config():
        gin.parse_config("tasks.look.overlap.reading.megabytes = 0.02")
    try:
        line = overlap.look(tasks, "train")
    finally:
        gin.clear_config()
    assert line.verdict == NOT_CHECKED
    assert "tasks.look.overlap.reading.megabytes" in line.to_set
    with refuses("tasks.look.overlap.reading.megabytes", 0):
        overlap.reading(0)


@pytest.mark.parametrize("sign", ["***", "…", "—", "。"])
def test_signs_between_documents_are_no_document_that_both_have(sign, write, monkeypatch):
    monkeypatch.setattr(overlap, "KEPT", 50)  # which signs alone would fill
    lists = [text for text in documents(200) for text in (text, sign)], [sign] * 100 + TEXTS[:100]
    assert overlap.look(write(*lists), "train").verdict == OK


def test_of_a_corpus_of_unknown_size_the_share_is_at_least_what_was_seen(monkeypatch):
    def task_of(texts):
        dataset = lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensor_slices(
            {"text": texts}
        )
        source = seqio.FunctionDataSource(dataset, ["train"])
        feature = corpora.token_feature(vocabularies.ro_mini_model)
        return seqio.Task("unlisted", source, {"targets": feature}, [])

    monkeypatch.setattr(overlap, "reading", lambda: 0.3 * sum(map(len, TEXTS)))
    line = overlap.look([task_of(TEXTS), task_of(TEXTS)], "train")
    assert "at least 100.0% of" in line.figure
    assert "an unknown number" in line.figure


def test_a_mixture_is_looked_at_by_the_command_and_by_the_dry_run(write, capsys):
    write(TEXTS[:300], planted(0.5, 300))
    mixture = mixtures.add("overlap_mixture", dict.fromkeys(NAMES, 1))
    try:
        main([mixture.name])
        said = " ".join(capsys.readouterr().out.split())
        assert "50.0% of overlap_one in overlap_other" in said
        lengths = {"inputs": 64, "targets": 32}
        cfg = DatasetConfig(mixture.name, lengths, "train", 8, shuffle=True, seed=0, pack=True)
        row = dry_run.corpora(cfg, 0, 10)["overlap of overlap_mixture"]
        assert row.verdict == WARNING
    finally:
        seqio.MixtureRegistry.remove(mixture.name)


PAIR = "Cei doi câini latră la lună"  # 6 words
HELD_OUT = " ".join(WORDS[:30]).capitalize() + "."


@pytest.fixture
def sets(tmp_path):
    """Return sets of minimal pairs, of held-out text, and of a task for fine-tuning."""
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"good": PAIR + ".", "bad": "Cei doi"}))
    (tmp_path / "held_out.txt").write_text(HELD_OUT + "\n")
    rows = [{"q": "Unde cade mâine prima zăpadă oare?", "a": "aici"}]
    for split in ("train", "test"):
        (tmp_path / f"rows_{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = {split: str(tmp_path / f"rows_{split}.jsonl") for split in ("train", "test")}
    source = Rows(files=files, columns={"inputs": "q", "targets": "a"})
    pairs.add("overlap_questions", source, vocabularies.ro_mini_model)
    yield (f"{tmp_path}/pairs.jsonl=good", f"{tmp_path}/held_out.txt", "overlap_questions")
    seqio.TaskRegistry.remove("overlap_questions")


@pytest.mark.parametrize(
    ("text", "is_held"),
    [
        (f"Noaptea, „{PAIR.lower()}”, zice el.", True),
        (HELD_OUT.partition(WORDS[13])[0], True),
        ("El: unde cade mâine, prima zăpadă, oare", True),
        ("Cei doi câini latră la soare; cei doi aici.", False),
        (" ".join(WORDS[:12]), False),
    ],
)
def test_sentences_of_evaluations_are_found_in_documents(sets, text, is_held, monkeypatch):
    monkeypatch.setattr(overlap, "evaluation_sets", lambda: sets)
    line = overlap.evaluation([*TEXTS[:9], f"{TEXTS[9]} {text} {TEXTS[9]}"])
    assert line.verdict == (WARNING if is_held else OK)
    assert f"{int(is_held)} of 10 documents" in line.figure
    assert ("(10.0%), such as “" in line.figure) == is_held


def test_a_look_compares_with_the_sets_that_gin_names(write, sets):
    task, _ = write([f"{text} {PAIR}" for text in TEXTS[:40]] + TEXTS[40:400], [])
    with gin.unlock_config():
        gin.parse_config(f"tasks.look.overlap.evaluation_sets.paths = {sets!r}")
    try:
        rows = {row.check: row for row in lines.table(sample.draw(task, "train"))}
    finally:
        gin.clear_config()
    assert "40 of 400 documents" in rows["evaluation sets"].figure
    assert rows["evaluation sets"].verdict == WARNING


@pytest.mark.parametrize("folder", ["lang=ro", "a=b=c", "plain"])
@pytest.mark.parametrize("column", ["text", "good"])
def test_a_set_may_lie_in_a_folder_with_an_equals_sign(folder, column, tmp_path, monkeypatch):
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "set.jsonl"
    path.write_text(json.dumps({column: TEXTS[0]}) + "\n")
    name = str(path) if column == "text" else f"{path}={column}"
    monkeypatch.setattr(overlap, "evaluation_sets", lambda: (name,))
    assert overlap.evaluation(TEXTS[:1]).verdict == WARNING


def test_a_set_that_does_not_exist_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(overlap, "evaluation_sets", lambda: (f"{tmp_path}/none.jsonl=good",))
    with refuses() as refusal:
        overlap.evaluation(TEXTS[:1])
    assert "none.jsonl" in str(refusal.value)


def test_short_sentences_without_blanks_are_in_any_text(monkeypatch, tmp_path):
    (tmp_path / "short.txt").write_text("今天天气很好\n")
    (tmp_path / "long.txt").write_text("今天天气很好我们一起去公园散步吧\n")
    for name, verdict in (("short", OK), ("long", WARNING)):
        path = f"{tmp_path}/{name}.txt"
        monkeypatch.setattr(overlap, "evaluation_sets", lambda path=path: (path,))
        assert overlap.evaluation(["他说今天天气很好我们一起去公园散步吧再见"]).verdict == verdict
