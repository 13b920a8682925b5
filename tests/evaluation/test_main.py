"""`python -m evaluation` measures models, and names what is wrong."""

import dataclasses
import json
import math

import pytest

from convert.formats.tokenizer_files import write_byte_tokenizer
from evaluation import __main__ as entry_point
from fakes.convert_fakes import FAMILIES, arrays, write_encoder_folder, write_folder, write_run
from fakes.paths import ROOT
from fakes.refuses import refuses
from tasks.corpus.catalog import Unreachable

DATA = ROOT / "data" / "ro_mini"
TEXT = str(DATA / "validation.jsonl")


@pytest.fixture
def run(tmp_path):
    """A run of random parameters with two checkpoints."""
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    for step in (3, 20):
        write_run(tmp_path / "run", sizes, step=step)
    vocabulary = (DATA / "ro_mini.model").read_bytes()
    (tmp_path / "run" / "vocabulary.model").write_bytes(vocabulary)
    return tmp_path / "run"


def evaluate(run, *flags, beside=()):
    out = run.parent / "out.json"
    flags = ("--language", "ro", "--text", TEXT, "--passages", "2", "--out", str(out), *flags)
    return entry_point.main([str(run), *map(str, beside), *flags])


def test_each_checkpoint_is_measured(run, capsys):
    pairs = run.parent / "pairs.jsonl"
    pairs.write_text('{"good": "Ana are un măr .", "bad": "Ana au un măr .", "kind": "number"}')
    flags = ("--every_checkpoint", "--per_passage", "--pairs", str(pairs))
    evaluate(run, *flags)
    table = capsys.readouterr().out
    assert [line.split(" | ")[0] for line in table.splitlines()[2:5]] == [
        "| run, step 3",
        "| run, step 20",
        "| n-grams of the other passages",
    ]
    (kept,) = (run / "inference_eval").glob("evaluation_ron_Latn_validation_*-metrics.jsonl")
    steps = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [line["step"] for line in steps] == [3, 20]
    for name in ("bits_per_byte", "filled_in", "minimal_pairs_number"):
        assert {name, f"baseline/{name}"} <= {*steps[0]}
    # Random parameters know no more than that there are 2,048 ids, of about 3 bytes each.
    bits = (
        math.log2(2048)
        / json.loads((run.parent / "out.json").read_text())["models"][0]["bytes_per_token"]
    )
    assert steps[0]["bits_per_byte"] > 0.9 * bits
    *models, ngrams = json.loads((run.parent / "out.json").read_text())["models"]
    for model, line in zip(models, steps, strict=True):
        bits_and_bytes = [sum(column) for column in zip(*model["passages"], strict=True)]
        assert len(model["passages"]) == 2
        assert bits_and_bytes[0] / bits_and_bytes[1] == pytest.approx(line["bits_per_byte"])
    assert "passages" not in ngrams
    evaluate(run, *flags)  # the same again
    assert capsys.readouterr().out == table
    assert [json.loads(line) for line in kept.read_text().splitlines()] == steps
    pairs.write_text(pairs.read_text().replace("măr", "pix"))
    evaluate(run, *flags)
    assert len([*(run / "inference_eval").iterdir()]) == 2  # figures of other pairs


def test_models_of_all_kinds_are_beside_each_other(run, capsys):
    """A run, a Hugging Face folder of another vocabulary, and an encoder."""
    umt5, bert = run.parent / "umt5", write_encoder_folder(run.parent / "bert", "bert")
    sizes = dataclasses.replace(FAMILIES["umt5"], vocab_size=384)
    write_folder(umt5, sizes, arrays(sizes))
    write_byte_tokenizer(str(umt5))
    pairs = run.parent / "pairs.jsonl"
    pairs.write_text('{"good": "Ana are un măr .", "bad": "Ana au un măr ."}')
    flags = ("--pairs", str(pairs), "--without", "text", "words")
    evaluate(run, *flags, beside=(umt5, bert))
    table = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[:5]]
    assert rows[0] == ["model", "parameters", "bytes a token", "minimal pairs"]
    assert [row[0] for row in rows[2:]] == ["run, step 20", str(umt5), f"{bert}, by masks"]
    bytes_per_token = [float(row[2]) for row in rows[2:]]
    assert bytes_per_token[1] == 1  # of bytes
    assert min(bytes_per_token[0], bytes_per_token[2]) > 1.2
    models = json.loads((run.parent / "out.json").read_text())["models"]
    assert models[1]["parameters"] == sum(array.size for array in arrays(sizes).values())
    assert models[2]["versions"]["jax"]
    with refuses(str(bert)):
        evaluate(run, *flags, "--objective", "prefix_lm", beside=(bert,))


def test_figures_that_the_run_cannot_take_are_in_the_file(run):
    """Another user's run may be read and not written."""
    (run / "inference_eval").write_text("")
    with pytest.raises((SystemExit, OSError)):
        evaluate(run, "--without", "words", "pairs")
    measured, _ = json.loads((run.parent / "out.json").read_text())["models"]
    assert measured["step"] == 20
    assert measured["measures"]["bits_per_byte"]


def test_english_needs_a_text_of_its_own(run):
    evaluate(run, "--language", "en", "--without", "words", "pairs")
    assert json.loads((run.parent / "out.json").read_text())["settings"]["language"] == "eng_Latn"
    with refuses() as refusal:
        entry_point.main([str(run), "--language", "English", "--out", str(run.parent / "a.json")])
    assert "--text" in refusal.value.to_set


def test_without_network_the_flag_for_a_text_of_ones_own_is_named(run, capsys, monkeypatch):
    def read(*args, **settings):
        raise Unreachable("the corpus cannot be reached")

    monkeypatch.setattr(entry_point, "read_documents", read)
    with pytest.raises(SystemExit) as ended:
        entry_point.main([str(run), "--language", "ro", "--out", str(run.parent / "a.json")])
    assert ended.value.code == 1  # it may succeed later
    assert "--text" in capsys.readouterr().err
