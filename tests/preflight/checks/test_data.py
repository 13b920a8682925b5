"""The data is read and measured, faults in it are found, and an unknown size is not guessed."""

import dataclasses
import functools
import json
import shutil

import pytest
import seqio

from common.tables import FAILS, NOT_CHECKED, OK, WARNING, run_check
from fakes import valid_run
from preflight.checks import data as checks
from preflight.checks import gin
from tasks import corpora, mixtures, pairs
from tasks.corpus import excerpt
from tasks.corpus.catalog import Catalog, Unreachable
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage.hub import Offline
from tasks.languages import public
from tasks.languages import table as languages
from tasks.look import lines, sample
from tasks.look.size import published_language
from tasks.rows import Rows

MODEL = "data/ro_mini/ro_mini.model"
ROMANIAN = ["Ana are mere și pere, dar nu are nuci."] * 40
CZECH = languages.find("czech")
PIECES, UNKNOWN, EXAMPLE = (
    functools.partial(checks.sample_line, name=name)
    for name in ("pieces", "unknown pieces", "example")
)
LOOKED = {name: functools.partial(checks.sample_line, name=name) for name in lines.NAMES}
READING = {
    "first records": checks.first_records,
    "shards": checks.shards,
    **LOOKED,
}


def row_of(check, **changes):
    return run_check("check", check, valid_run.context(**changes))


@pytest.fixture(scope="module")
def sound():
    return valid_run.context()


def test_a_valid_run_passes(sound):
    for check in (*READING.values(), checks.fill):
        assert run_check("check", check, sound).verdict == OK, check


def test_tokens_a_word_are_counted(sound):
    assert 1 < PIECES(sound).numbers["tokens_a_word"] < 2.5


def test_an_example_is_shown_with_its_spans(sound):
    inputs, targets = EXAMPLE(sound).text.splitlines()
    assert inputs.startswith("inputs ")
    assert "<0>" in inputs
    assert targets.split()[:2] == ["targets", "<0>"]


def test_the_sample_is_read_once(monkeypatch):
    context = valid_run.context()
    found = context.look
    monkeypatch.setattr(CorpusSource, "peek", lambda *_: pytest.fail("read again"))
    assert context.look is found
    assert run_check("check", UNKNOWN, context).verdict == OK


def test_a_vocabulary_of_another_language_is_noticed(write_corpus, task):
    foreign = CorpusSource(write_corpus(["Ἄνδρα μοι ἔννεπε Μοῦσα πολύτροπον ὃς μάλα"] * 20))
    row = row_of(UNKNOWN, **task(foreign))
    assert row.verdict == WARNING
    assert "VOCABULARY_FILE" in row.to_set


def test_a_missing_corpus_or_column_is_found(write_corpus, tmp_path, task):
    for source, named in (
        (CorpusSource(write_corpus(ROMANIAN, "body")), "body"),
        (CorpusSource(str(tmp_path / "nowhere")), "nowhere"),
    ):
        row = row_of(checks.first_records, **task(source))
        assert row.verdict == FAILS
        assert named in row.figure


def test_offline_no_remote_corpus_is_read(task):
    context = valid_run.context(offline=True, **task(CorpusSource("user/private")))
    for check in (*READING.values(), checks.copies):
        row = run_check("check", check, context)
        assert (row.verdict, "--offline" in row.figure) == (NOT_CHECKED, True)
    # The objective alone is enough for this one.
    assert run_check("check", checks.fill, context).verdict == OK


@pytest.mark.parametrize("kind", [Unreachable, Offline])
def test_an_unreachable_network_is_not_a_fault_of_the_run(kind, task, monkeypatch):
    asked = []

    def refuse(*_, **__):
        asked.append(kind)
        raise kind("corpus 'a/b'", why="cannot be reached")

    monkeypatch.setattr(Catalog, "names", refuse)
    context = valid_run.context(**task(CorpusSource("user/private")))
    for check in (*READING.values(), checks.epochs):
        assert run_check("check", check, context).verdict == NOT_CHECKED
    assert len(asked) == 1  # the next checks do not wait again


@pytest.mark.parametrize(
    ("lengths", "verdict", "said"),
    [
        ({"inputs": 512, "targets": 114}, OK, "decoder 100 % full"),
        ({"inputs": 512, "targets": 256}, WARNING, "decoder 44 % full: set targets to 114"),
        ({"inputs": 512, "targets": 100}, FAILS, "114"),
        ({"inputs": 512}, FAILS, "TASK_FEATURE_LENGTHS['targets']"),
    ],
)
def test_lengths_are_held_against_the_objective(lengths, verdict, said):
    cfg = dataclasses.replace(valid_run.TRAIN, task_feature_lengths=lengths)
    context = valid_run.context(train_dataset_cfg=cfg)
    row = run_check("check", checks.fill, context)
    assert row.verdict == verdict
    assert said in f"{row.figure} {row.to_set}"
    # Only `fill` and `example` name lengths that do not fit.
    assert run_check("check", UNKNOWN, context).verdict != FAILS


def test_fill_is_measured_where_the_objective_does_not_fix_it():
    lengths = {"inputs": 64, "targets": 64}
    changes = {"mixture_or_task_name": "ro_mini_prefix_lm", "task_feature_lengths": lengths}
    cfg = dataclasses.replace(valid_run.TRAIN, pack=False, **changes)
    row = row_of(checks.fill, train_dataset_cfg=cfg)
    assert row.verdict == WARNING
    # Cut at a random place, a run of 64 leaves each side half empty.
    assert 0.3 < row.numbers["encoder"] < 0.7
    assert row.numbers["encoder"] + row.numbers["decoder"] == pytest.approx(65 / 64, rel=0.05)
    assert "pack = True" in row.to_set


def test_fill_is_measured_in_rows_that_are_packed_as_in_training():
    lengths = {"inputs": 256, "targets": 153}
    changes = {"mixture_or_task_name": "ro_mini_ul2", "task_feature_lengths": lengths}
    row = row_of(checks.fill, train_dataset_cfg=dataclasses.replace(valid_run.TRAIN, **changes))
    assert row.verdict == OK
    assert row.numbers["encoder"] >= 0.97  # 0.79 with one open row
    wider = dataclasses.replace(
        valid_run.TRAIN, **changes | {"task_feature_lengths": lengths | {"targets": 200}}
    )
    row = row_of(checks.fill, train_dataset_cfg=wider)
    assert (row.verdict, "set targets to 153" in row.figure) == (WARNING, True)


def test_the_measured_fill_is_the_objective_s(sound):
    numbers = checks.fill(sound).numbers
    wanted = (numbers["encoder"], numbers["decoder"])
    assert checks.measured_fill(sound) == pytest.approx(wanted, abs=0.03)


def test_files_that_cannot_be_cut_are_too_few_for_many_shards(tmp_path, task):
    few = CorpusSource(files={"train": str(tmp_path / "train*"), "validation": "none"})
    (tmp_path / "train.csv").write_text("text\n" + "Ana are mere.\n" * 8)
    row = row_of(checks.shards, tpu="v4-64", **task(few))
    assert row.verdict == WARNING
    assert "1 file for 8 shards on 8 hosts" in row.figure


def test_a_corpus_of_fewer_texts_than_shards_is_found(write_corpus, task):
    row = row_of(checks.shards, **task(CorpusSource(write_corpus(ROMANIAN[:3]))))
    assert row.verdict == FAILS
    assert "3 usable texts" in row.figure


@pytest.fixture
def mixed(write_corpus, task, tmp_path):
    """A run on a mixture of a sound corpus and one of a single text."""
    cfg = task(CorpusSource(write_corpus(ROMANIAN)))["train_dataset_cfg"]
    (tmp_path / "short.jsonl").write_text(json.dumps({"text": ROMANIAN[0]}) + "\n")
    source = CorpusSource(files={"train": str(tmp_path / "short.jsonl")})
    later = corpora.add("z_later", source, MODEL)
    mixture = mixtures.add("both", {cfg.provider.name: 1, later.name: 1})
    train = dataclasses.replace(cfg, mixture_or_task_name=mixture.name)
    yield {"train_dataset_cfg": train, "train_eval_dataset_cfg": None}
    seqio.MixtureRegistry.remove(mixture.name)
    seqio.TaskRegistry.remove(later.name)


def test_every_corpus_of_a_mixture_has_texts_for_all_shards(mixed):
    row = row_of(checks.shards, **mixed)
    assert row.verdict == FAILS
    assert "1 usable text" in row.figure


def test_all_corpora_of_a_mixture_are_kept_on_the_disk(mixed, tmp_path):
    row = row_of(checks.copies, **mixed)
    files = ("train-0.jsonl", "short.jsonl")
    assert row.numbers["kept"] == sum((tmp_path / name).stat().st_size for name in files)


def test_a_mixture_is_told_which_of_its_tasks_is_described(mixed):
    context = valid_run.context(**mixed)
    assert context.task.name in run_check("check", gin.task, context).figure


def test_a_split_that_no_task_has_is_not_said_to_be_read(write_corpus, task):
    changes = task(CorpusSource(files={"train": write_corpus(ROMANIAN)}))
    cfg = dataclasses.replace(changes["train_dataset_cfg"], split="nowhere")
    row = row_of(checks.first_records, train_dataset_cfg=cfg, train_eval_dataset_cfg=None)
    assert row.verdict == NOT_CHECKED


def test_a_slice_has_no_order_that_can_be_saved(sound):
    assert run_check("check", checks.order, sound).verdict == OK
    cfg = dataclasses.replace(valid_run.TRAIN, split="train[:50]")
    row = row_of(checks.order, train_dataset_cfg=cfg)
    assert (row.verdict, "slice" in row.figure) == (FAILS, True)


def test_pairs_are_measured_and_shown_as_the_task_makes_them(tmp_path):
    path = tmp_path / "pairs.jsonl"
    row = json.dumps({"a": "Ana are mere și pere. " * 8, "b": "Are mere."}) + "\n"
    path.write_text(row * 40)
    source = Rows(files={"train": str(path)}, columns={"inputs": "a", "targets": "b"})
    pairs.add("temporary_pairs", source, MODEL, prefix="sumar: ")
    try:
        cfg = dataclasses.replace(valid_run.TRAIN, mixture_or_task_name="temporary_pairs")
        context = valid_run.context(train_dataset_cfg=cfg, train_eval_dataset_cfg=None)
        for check in (checks.first_records, checks.shards):
            assert run_check("check", check, context).verdict == OK
        inputs, targets = EXAMPLE(context).text.splitlines()
        assert inputs.split() == ["inputs", "sumar:", *(["Ana", "are", "mere", "și", "pere."] * 8)]
        assert targets.split() == ["targets", "Are", "mere."]
        assert 0 < min(checks.measured_fill(context)) < 1
    finally:
        seqio.TaskRegistry.remove("temporary_pairs")


def test_rows_of_an_encoder_are_measured_and_shown():
    context = valid_run.context(**valid_run.encoder())
    row = checks.fill(context)
    assert row.verdict == OK
    assert 0.5 < row.numbers["encoder"] < 1
    inputs, targets = EXAMPLE(context).text.splitlines()
    assert "[MASK]" in inputs
    assert "[MASK]" not in targets
    assert targets.startswith("targets  [CLS] ")


# --- sizes


def test_epochs_are_counted(write_corpus, task):
    changes = task(CorpusSource(write_corpus(ROMANIAN * 50, files=2)))
    context = valid_run.context(**changes, total_steps=10)
    row = run_check("check", checks.epochs, context)
    tokens = 2 * 2000 * len(context.require_vocabulary().encode(ROMANIAN[0]))
    assert row.numbers["tokens"] == pytest.approx(tokens, rel=0.01)
    run = context.objective.lengths(128).tokens
    assert row.numbers["epochs"] == pytest.approx(10 * 16 * run / tokens, rel=0.01)
    assert row.verdict == OK
    assert row_of(checks.epochs, **changes, total_steps=10_000).verdict == WARNING


def test_epochs_of_a_mixture_are_those_of_its_rates(write_corpus, task):
    changes = task(CorpusSource(write_corpus(ROMANIAN * 50, files=2)))
    cfg = valid_run.context(**changes).data
    alone = row_of(checks.epochs, **changes, total_steps=10).numbers["epochs"]
    name = cfg.provider.name
    later = corpora.add("z_later", cfg.provider.source, MODEL)
    mixture = mixtures.add("later", {name: [(0, 1), (4, 1)], later.name: [(0, 0), (4, 3)]})
    try:
        mixed = {"train_dataset_cfg": dataclasses.replace(cfg, mixture_or_task_name=mixture.name)}
        found = row_of(checks.epochs, **mixed, total_steps=10)
        assert found.numbers["epochs"] == pytest.approx(alone * (4 + 6 / 4) / 10)
        short = row_of(checks.epochs, **mixed, total_steps=4)
        assert (short.verdict, "TRAIN_STEPS" in short.figure) == (FAILS, True)
    finally:
        seqio.MixtureRegistry.remove(mixture.name)
        seqio.TaskRegistry.remove(later.name)


def test_an_unknown_size_is_not_guessed(tmp_path, task, monkeypatch):
    (tmp_path / "train.csv").write_text("text\n" + "Ana are mere.\n" * 9)
    changes = task(CorpusSource(files={"train": str(tmp_path / "train.csv")}))
    assert "by the files' sizes" in row_of(checks.epochs, **changes).figure
    monkeypatch.setattr(CorpusSource, "text_bytes", lambda *_: None)
    assert row_of(checks.epochs, **changes).verdict == NOT_CHECKED
    assert "an unknown size" in row_of(checks.copies, **changes).figure


def test_the_sizes_of_fineweb_2_are_known_offline(task):
    context = valid_run.context(offline=True, **task(public.fineweb2("czech")), total_steps=100_000)
    row = run_check("check", checks.epochs, context)
    read = 100_000 * 16 * context.objective.lengths(128).tokens
    assert row.verdict == OK
    assert row.numbers["epochs"] == pytest.approx(read / (CZECH.words * 1.5))
    assert "1.5 tokens a word assumed" in row.figure
    row = run_check("check", checks.copies, context)
    assert (row.verdict, row.numbers["copy"]) == (OK, CZECH.parquet_bytes)
    assert row.numbers["cache"] == pytest.approx(CZECH.words * 1.5 * 3)
    weighted = task(public.fineweb2("czech", by_cluster=True))
    assert "without copies" in row_of(checks.epochs, offline=True, **weighted).figure
    assert published_language(context.task.source, "validation") is None


def test_the_tokens_of_fineweb_2_are_measured_where_it_can_be_read(task, monkeypatch):
    source = public.fineweb2("czech")
    text = ["Ana are mere."] * 9
    documents = lambda *_: iter([{"text": each} for each in text])
    monkeypatch.setattr(excerpt, "documents", documents)
    for name in ("list_files", "passed_over", "peek"):
        monkeypatch.setattr(type(source), name, lambda *_: [])
    monkeypatch.setattr(type(source), "mixing", lambda *_: "")
    monkeypatch.setattr(sample, "overview", lambda *_: None)
    row = row_of(checks.epochs, **task(source))
    ids = valid_run.context().require_vocabulary().encode(text[0])
    assert row.numbers["tokens"] == pytest.approx(CZECH.text_bytes * len(ids) / len(text[0]))


def test_the_disk_of_a_small_corpus_is_measured(write_corpus, task, monkeypatch, tmp_path):
    context = valid_run.context(**task(CorpusSource(write_corpus(ROMANIAN * 50))))
    row = run_check("check", checks.copies, context)
    size = (tmp_path / "train-0.jsonl").stat().st_size
    assert row.verdict == OK
    assert (row.numbers["copy"], row.numbers["kept"]) == (size, size)
    ids = len(context.require_vocabulary().encode(ROMANIAN[0]))
    assert row.numbers["cache"] == pytest.approx(3 * 2000 * ids, rel=0.01)
    usage = shutil.disk_usage(tmp_path)._replace(free=size - 1)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: usage)
    row = run_check("check", checks.copies, context)
    assert row.verdict == FAILS
    assert "TMPDIR" in row.to_set
