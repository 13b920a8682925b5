"""Objectives are found by name, with the lengths and densities that the table promises."""

import numpy as np
import pytest
import seqio

from fakes.objectives import HIDING, MANY, MINI, NAMES, examples_of, rebuild, text
from fakes.refuses import refuses
from tasks import corpora, romanian, vocabularies
from tasks.objectives import registry, ul2


def expected(name: str) -> tuple[float, float]:
    """The share of tokens that are hidden and the mean span, after T5's rounding."""
    if name == "single_tokens":  # 77 of 511 fall anywhere: so many stretches there are on average
        return 77 / 511, 511 / (511 - 77 + 1)
    if name == "ul2":
        each = ul2.UL2.lengths_of_each(256, MINI)  # two in a row
        noises = [d.noise for d in ul2.UL2.denoisers]
        counts = [noise.counts(e.tokens) for noise, e in zip(noises, each, strict=True)]
        hidden, n = (sum(column) for column in zip(*counts, strict=True))
        return hidden / sum(e.tokens for e in each), hidden / n
    if name == "whole_words":
        return 0.15, 3.0
    noise = registry.get_objective(name)
    hidden, n = noise.counts(noise.lengths(512).tokens)
    return hidden / noise.lengths(512).tokens, hidden / n


@pytest.mark.parametrize("name", HIDING)
def test_no_token_is_lost_and_as_many_are_hidden_as_promised(name):
    examples, lengths = examples_of(name)
    found = [rebuild(example, name == "ul2") for example in examples]
    rebuilt = np.concatenate([part for example in found for part in example.text])
    np.testing.assert_array_equal(rebuilt, text(MANY))
    sizes = [len(span) for example in found for span in example.spans]
    density, mean_span = expected(name)
    assert sum(sizes) / MANY == pytest.approx(density, rel=0.01)
    assert np.mean(sizes) == pytest.approx(mean_span, rel=0.01)
    for key in lengths:
        assert max(len(e[key]) for e in examples) <= lengths[key] - 1


def test_lengths_are_those_of_the_table():
    rows = [line.split("|") for line in registry.__doc__.splitlines() if line.startswith("| ")][1:]
    table = {row[1].strip(): row[3].strip() for row in rows}
    for name in NAMES:
        objective = registry.get_objective(name)
        if name == "ul2":  # with prefixes of one id each, as in a vocabulary that has them
            objective = ul2.ul2("R", "S", "X")
        assert str(objective.lengths(512, vocabularies.byt5()).targets) == table[name]


def test_a_task_knows_its_objective_and_its_lengths():
    for task, name in (
        ("ro_mini_span_corruption", "span_corruption"),
        ("ro_mini_whole_words", "whole_words"),
        ("ro_mini_single_tokens", "single_tokens"),
        ("ro_mini_prefix_lm", "prefix_lm"),
        ("ro_mini_ul2", "ul2"),
        ("ro_mini_byt5_span_corruption", "byt5"),
    ):
        objective = registry.objective_of(task)
        assert objective is registry.get_objective(name)
        vocabulary = seqio.TaskRegistry.get(task).output_features["targets"].vocabulary
        needed = objective.lengths(128, vocabulary).targets
        (row,) = [r for r in romanian.__doc__.splitlines() if r.startswith(f"| {task} |")]
        assert row.rstrip("| ").endswith(f" {needed}")


def test_an_unknown_objective_is_refused_with_those_that_exist():
    with refuses("objective", "bart"):
        corpora.add("none", romanian.RO_MINI, vocabularies.byt5(), objective="bart")
