"""Every objective loses no token, hides as much as it says, and names the lengths it needs."""

import functools
import math
from typing import NamedTuple

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tasks import corpora, romanian, vocabularies
from tasks.objectives import prefix_lm, registry, span_corruption, ul2

MINI = vocabularies.sentencepiece(vocabularies.ro_mini_model)
SENTINELS = np.array(vocabularies.sentinels(MINI))
STARTS = vocabularies.word_starts(MINI)
PREFIXES = [list(vocabularies.ids_of(MINI, p)) for p in ("[R]", "[S]", "[X]")]
NAMES = sorted(registry.OBJECTIVES)
HIDING = [name for name in NAMES if name != "prefix_lm"]


@functools.cache
def text(size: int, word_starts: float = 0.65, seed: int = 0) -> np.ndarray:
    """Random ids, of which a share begin a word."""
    rng = np.random.default_rng(seed)
    ids = np.arange(3, SENTINELS.min())
    begin, inside = ids[STARTS[ids]], ids[~STARTS[ids]]
    begins = rng.random(size) < word_starts
    return np.where(begins, rng.choice(begin, size), rng.choice(inside, size)).astype(np.int32)


def run(objective, tokens, lengths, seed=3, vocabulary=MINI):
    """The examples that an objective makes of a text, before EOS."""
    size = max(len(tokens), 1)
    dataset = tf.data.Dataset.from_tensor_slices(tokens).batch(min(997, size))
    dataset = dataset.map(lambda x: {"targets": tf.ensure_shape(x, [None])})
    feature = seqio.Feature(vocabulary)
    with seqio.utils.map_seed_manager(seed):
        found = registry.find(objective)
        dataset = found.preprocess(dataset, lengths, {"inputs": feature, "targets": feature}, "t")
    return list(dataset.as_numpy_iterator())


class Read(NamedTuple):
    """An example put together again: text, spans hidden, and stretches shown between them."""

    text: list[np.ndarray]
    spans: list[np.ndarray]
    shown: list[np.ndarray]


def read(example, prefixed: bool = False) -> Read:
    inputs, targets = example["inputs"], example["targets"]
    if prefixed:
        (prefix,) = [p for p in PREFIXES if inputs[: len(p)].tolist() == p]
        inputs = inputs[len(prefix) :]
    marks = [x[np.isin(x, SENTINELS)] for x in (inputs, targets)]
    np.testing.assert_array_equal(marks[0], SENTINELS[: len(marks[0])], "sentinels out of order")
    np.testing.assert_array_equal(marks[0], marks[1])
    assert (inputs > 2).all(), "padding, EOS or an unknown piece in the inputs"
    assert (targets > 2).all(), "padding, EOS or an unknown piece in the targets"
    cut = lambda x: np.split(x, np.flatnonzero(np.isin(x, SENTINELS)))
    before, *hidden = cut(targets)
    assert not len(before), "the targets begin with no sentinel"
    first, *others = cut(inputs)
    hidden, others = [s[1:] for s in hidden], [s[1:] for s in others]
    assert all(len(s) for s in hidden)
    pairs = [part for pair in zip(hidden, others, strict=True) for part in pair]
    return Read([first, *pairs], hidden, [first, *others])


@functools.cache
def million(name: str):
    """Examples of a million tokens at 512 inputs."""
    lengths = {"inputs": 512, "targets": registry.lengths(name, 512, MINI).targets}
    return run(name, text(1_000_000), lengths), lengths


def expected(name: str) -> tuple[float, float]:
    """The share of tokens that are hidden and the mean span, after T5's rounding to whole ones."""
    if name == "single_tokens":  # 77 of 511 fall anywhere: so many stretches there are on average
        return 77 / 511, 511 / (511 - 77 + 1)
    if name == "ul2":
        each = ul2.UL2.each_length(512, MINI)
        noises = [d.noise for d in ul2.UL2.denoisers]
        counts = [noise.counts(e.tokens) for noise, e in zip(noises, each, strict=True)]
        hidden, n = (sum(column) for column in zip(*counts, strict=True))
        return hidden / sum(e.tokens for e in each), hidden / n
    if name == "whole_words":
        return 0.15, 3.0
    noise = registry.find(name)
    hidden, n = noise.counts(noise.fill(512).tokens)
    return hidden / noise.fill(512).tokens, hidden / n


@pytest.mark.parametrize("name", HIDING)
def test_a_million_tokens_are_all_there_and_hidden_as_often_as_told(name):
    examples, lengths = million(name)
    found = [read(example, name == "ul2") for example in examples]
    rebuilt = np.concatenate([part for example in found for part in example.text])
    np.testing.assert_array_equal(rebuilt, text(1_000_000))
    sizes = [len(span) for example in found for span in example.spans]
    density, mean_span = expected(name)
    assert sum(sizes) / 1_000_000 == pytest.approx(density, rel=0.01)
    assert np.mean(sizes) == pytest.approx(mean_span, rel=0.01)
    for key in lengths:
        assert max(len(e[key]) for e in examples) <= lengths[key] - 1


def test_prefix_lm_cuts_a_million_tokens_in_the_middle_on_average():
    examples = run("prefix_lm", text(1_000_000), {"inputs": 64, "targets": 64})
    parts = [part for e in examples for part in (e["inputs"], e["targets"])]
    np.testing.assert_array_equal(np.concatenate(parts), text(1_000_000))
    assert sum(map(len, parts[::2])) / 1_000_000 == pytest.approx(0.5, rel=0.01)
    assert {len(e["inputs"]) for e in examples} == set(range(1, 64))
    assert not np.isin(np.concatenate(parts), [*SENTINELS, 0]).any()


def test_hidden_words_are_whole():
    for example in million("whole_words")[0]:
        found = read(example)
        assert STARTS[[span[0] for span in found.spans]].all()
        assert STARTS[[shown[0] for shown in found.shown[1:] if len(shown)]].all()


def test_whole_words_fill_an_example_nearly():
    examples, lengths = million("whole_words")
    # Whichever of inputs and targets is full first ends an example.
    fill = [max(len(e[key]) + 1 - lengths[key] for key in lengths) for e in examples]
    assert np.median(fill) >= -2
    assert len(examples) < 1.12 * 1_000_000 / registry.lengths("whole_words", 512).tokens


def test_single_tokens_are_at_most_so_many():
    for example in million("single_tokens")[0][:-1]:
        assert sum(map(len, read(example).spans)) == 77
    few = registry.find("single_tokens").__class__(density=0.4, max_predictions=9)
    examples = run(few, text(20_000), {"inputs": 64, "targets": 19})
    assert {sum(map(len, read(e).spans)) for e in examples[:-1]} == {9}
    assert few.lengths(64).targets == 19


def test_ul2_has_each_denoiser_in_equal_parts_behind_its_prefix():
    examples, _ = million("ul2")
    each = ul2.UL2.each_length(512, MINI)
    kinds = {}
    for denoiser, found in zip(ul2.UL2.denoisers, each, strict=True):
        hidden, n = denoiser.noise.counts(found.tokens)
        kinds[denoiser.prefix, n, hidden + n] = 0
    assert len(kinds) == 7
    for example in examples[:-1]:
        inputs = example["inputs"].tolist()
        (prefix,) = [p for p in ("[R]", "[S]", "[X]") if MINI.encode(p) == inputs[:4]]
        n = np.isin(example["targets"], SENTINELS).sum()
        kinds[prefix, n, len(example["targets"])] += 1
    # All blocks but the last hold as many of each.
    block = 7 * round(32 / 7)
    assert max(kinds.values()) - min(kinds.values()) <= block // 7
    kinds_in_order = [tuple(e["inputs"][:4]) for e in examples]
    assert len({tuple(kinds_in_order[i : i + 7]) for i in range(0, 350, 7)}) > 10


def test_a_sequential_denoiser_continues_the_text():
    for example in million("ul2")[0]:
        if example["inputs"][:4].tolist() == MINI.encode("[S]"):
            assert example["inputs"][-1] == SENTINELS[0]
            assert example["targets"][0] == SENTINELS[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides_everything(name):
    lengths = {"inputs": 256, "targets": 256}  # at which bytes have more than one span
    same = lambda x, y: [a["inputs"].tolist() for a in x] == [b["inputs"].tolist() for b in y]
    a, b, c = (run(name, text(12_000), lengths, seed) for seed in (0, 0, 1))
    assert same(a, b)
    assert not same(a, c)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_left_at_the_end_is_hidden_too(name):
    lengths = {"inputs": 64, "targets": 64}
    for size in (2, 2_111):
        tokens = text(size, seed=size)
        examples = run(name, tokens, lengths)
        if name == "prefix_lm":
            parts = [part for e in examples for part in (e["inputs"], e["targets"])]
        else:
            parts = [part for e in examples for part in read(e, name == "ul2").text]
        rebuilt = np.concatenate(parts)
        missing = size - len(rebuilt)
        assert missing <= (name != "whole_words"), "only a single token cannot be hidden in part"
        np.testing.assert_array_equal(rebuilt, tokens[: size - missing])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_text_without_blanks_and_words_of_one_piece_are_hidden_too(share):
    tokens = text(5_000, share)
    for lengths in ({"inputs": 20, "targets": 8}, {"inputs": 128, "targets": 29}):
        examples = run("whole_words", tokens, lengths)
        rebuilt = np.concatenate([part for e in examples for part in read(e).text])
        np.testing.assert_array_equal(rebuilt, tokens)
        assert all(len(e[key]) < lengths[key] for e in examples for key in lengths)


@pytest.mark.parametrize("name", HIDING)
def test_targets_too_short_are_refused_with_the_length_to_set(name):
    needed = registry.lengths(name, 128, MINI).targets
    with pytest.raises(ValueError, match=rf"task t: inputs 128 .*: set it to {needed}$"):
        run(name, text(10), {"inputs": 128, "targets": needed - 1})


def test_lengths_are_as_the_page_says():
    page = {line.split("|")[1].strip(): line.split("|")[3].strip() for line in _table()}
    for name in NAMES:
        vocabulary = _single_piece_prefixes() if name == "ul2" else None
        objective = vocabulary or registry.find(name)
        assert str(objective.lengths(512, vocabularies.byt5()).targets) == page[name]


def _table():
    return [line for line in registry.__doc__.splitlines() if line.startswith("| ")][1:]


def _single_piece_prefixes():
    """UL2 whose prefixes are one id each, as in a vocabulary that has them as pieces."""
    return ul2.ul2("R", "S", "X")


def test_a_task_knows_its_objective_and_its_lengths():
    for task, name in (
        ("ro_mini_span_corruption", "span_corruption"),
        ("ro_mini_whole_words", "whole_words"),
        ("ro_mini_single_tokens", "single_tokens"),
        ("ro_mini_prefix_lm", "prefix_lm"),
        ("ro_mini_ul2", "ul2"),
        ("ro_mini_byt5_span_corruption", "byt5"),
    ):
        assert registry.of_task(task) is registry.find(name)
        needed = registry.lengths_of_task(task, 128).targets
        (row,) = [r for r in romanian.__doc__.splitlines() if r.startswith(f"| {task} |")]
        assert row.rstrip("| ").endswith(f" {needed}")


def test_unknown_objectives_and_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="objective is 'bart', but must be one of span_corruption"):
        corpora.add("none", romanian.RO_MINI, vocabularies.byt5(), objective="bart")
    with pytest.raises(ValueError, match=r"max_predictions is 0"):
        registry.find("single_tokens").__class__(max_predictions=0)
    with pytest.raises(ValueError, match=r"density is 1"):
        registry.find("single_tokens").__class__(density=1.0)
    many = registry.find("single_tokens").__class__(max_predictions=200)
    with pytest.raises(ValueError, match=r"102 hidden tokens.*set max_predictions to 100"):
        run(many, text(10), {"inputs": 682, "targets": 682})
    with pytest.raises(ValueError, match="set both to at least 2"):
        run(prefix_lm.PrefixLM(), text(10), {"inputs": 1, "targets": 9})
    with pytest.raises(ValueError, match="cannot spell '\\[漢\\]'"):
        ul2.ul2(regular="[漢]").lengths(128, MINI)


def test_prefix_lm_needs_no_sentinels():
    vocabulary = seqio.ByteVocabulary(extra_ids=0)
    corpora.add("bare", romanian.RO_MINI, vocabulary, objective="prefix_lm")
    try:
        lengths = {"inputs": 64, "targets": 64}
        task = seqio.TaskRegistry.get("bare")
        examples = task.get_dataset(lengths, "validation", shuffle=False, seed=0)
        assert len(list(examples.take(3))) == 3
    finally:
        seqio.TaskRegistry.remove("bare")


def test_the_docstrings_examples():
    ids = tuple(range(999, 899, -1))

    def hidden(tokens, places):
        mask = np.isin(np.arange(len(tokens)), places)
        rows = tf.zeros_like(tokens)
        inputs, targets = span_corruption.corrupt_rows(
            tf.constant(tokens), tf.constant(mask), rows, 1, ids
        )
        return inputs[0].numpy().tolist(), targets[0].numpy().tolist()

    words = [11, 12, 13, 14, 15, 16, 14, 17, 18, 19, 12, 19, 20]
    assert hidden(words, [2, 3, 9, 10]) == (
        [11, 12, 999, 15, 16, 14, 17, 18, 998, 19, 20],
        [999, 13, 14, 998, 19, 12],
    )
    single = [11, 12, 13, 14, 15, 16, 17, 18, 12, 19]
    assert hidden(single, [1, 6, 7]) == (
        [11, 999, 13, 14, 15, 16, 998, 12, 19],
        [999, 12, 998, 17, 18],
    )
    assert registry.find("single_tokens").__class__(density=0.3).count(10) == 3
    assert hidden(single[:8], [6, 7]) == ([11, 12, 13, 14, 15, 16, 999], [999, 17, 18])
    assert span_corruption.SpanNoise(0.25, math.inf).counts(8) == (2, 1)
