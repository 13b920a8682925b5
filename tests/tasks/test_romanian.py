"""The Romanian tasks register without a look at files, and give what a recipe feeds a model."""

import json
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import seqio

from fakes.paths import ROOT
from tasks import romanian, vocabularies  # noqa: F401  registers the tasks
from tasks.objectives import registry
from tasks.objectives.masked_lm import MaskedLM

# Those of T5 that hide text; one is read from a cache only.
MINI = [name for name in seqio.TaskRegistry.names() if name.startswith("ro_mini")]
MINI = [n for n in MINI if not isinstance(registry.objective_of(n), MaskedLM | None)]
MINI.remove("ro_mini_span_corruption_i128_t29")
LENGTHS = {"inputs": 128, "targets": 29}
BYTE_LENGTHS = {"inputs": 256, "targets": 48}


def _dataset(name, split="validation", lengths=None, **kwargs):
    if lengths is None:
        vocabulary = seqio.TaskRegistry.get(name).output_features["targets"].vocabulary
        targets = registry.objective_of(name).lengths(128, vocabulary).targets
        lengths = {"inputs": 128, "targets": targets}
        lengths = BYTE_LENGTHS if "byt5" in name else lengths
    kwargs = {"shuffle": False, "seed": 0, **kwargs}
    return seqio.TaskRegistry.get(name).get_dataset(lengths, split, **kwargs), lengths


@pytest.mark.slow
def test_registration_reads_nothing_and_knows_no_trainer():
    code = (
        "import builtins, io, sys, pathlib; import seqio, tensorflow_text\n"
        "import socket; socket.socket.connect = None\n"
        "data = lambda e, a: sys.exit(9) if e == 'open' and 'data/ro_mini' in str(a[0]) else None\n"
        "sys.addaudithook(data)\n"
        "import tasks.romanian\n"
        "print(sorted({'t5x', 'datasets', 'torch', 't5'} & set(sys.modules)))"
    )
    root = ROOT
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", MINI)
def test_inputs_and_targets_end_in_eos_and_hold_no_padding(name):
    dataset, lengths = _dataset(name)
    examples = list(dataset.as_numpy_iterator())
    assert examples
    for example in examples:
        for key in ("inputs", "targets"):
            assert example[key].dtype == np.int32
            assert len(example[key]) <= lengths[key]
            assert example[key][-1] == 1
            assert (example[key][:-1] > 1).all()


def _text(name):
    """The validation text, put together again from its examples."""
    vocabulary = seqio.TaskRegistry.get(name).output_features["targets"].vocabulary
    sentinels = set(vocabularies.sentinels(vocabulary))
    ids = []
    for example in _dataset(name)[0].as_numpy_iterator():
        behind, span = {}, []
        for token in example["targets"][:-1].tolist():
            if token in sentinels:
                span = behind[token] = []
            else:
                span.append(token)
        shown = example["inputs"][:-1].tolist()
        ids += [t for token in shown for t in behind.get(token, [token])]
    return vocabulary.decode(ids)


def _documents():
    path = vocabularies.resolve("data/ro_mini/validation.jsonl")
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def test_bytes_give_the_corpus_back_letter_by_letter():
    text = _text("ro_mini_byt5_span_corruption")
    assert text == "".join(romanian_normal(t) for t in _documents())
    assert not set("şţŞŢ") & set(text)
    assert unicodedata.is_normalized("NFC", text)


def romanian_normal(text):
    from tasks.text.normalize import normalize

    return normalize(text, cedilla=True)


def test_pieces_give_the_corpus_back_word_by_word():
    no_spaces = _text("ro_mini_no_spaces_span_corruption").replace(" ⁇ ", "")
    assert no_spaces.count(" ") < len(_documents()), "only before each document"
    words = _text("ro_mini_span_corruption").replace(" ⁇ ", "?").split()
    expected = " ".join(_documents()).split()
    assert len(words) == pytest.approx(len(expected), rel=0.05)


def test_a_recipes_batches_are_upstreams_and_the_same_for_one_seed():
    def batches(seed):
        dataset = seqio.get_dataset(
            "ro_mini_span_corruption",
            LENGTHS,
            seqio.EncDecFeatureConverter(pack=True),
            shuffle=True,
            num_epochs=None,
            seed=seed,
            batch_size=4,
        )
        return list(dataset.take(3).as_numpy_iterator())

    first, again, other = batches(0), batches(0), batches(1)
    assert first[0]["encoder_input_tokens"].shape == (4, 128)
    assert first[0]["decoder_target_tokens"].shape == (4, 29)
    same = lambda a, b: all((x[k] == y[k]).all() for x, y in zip(a, b, strict=True) for k in x)
    assert same(first, again)
    assert not same(first, other)
