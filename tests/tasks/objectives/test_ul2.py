"""UL2's denoisers come in equal parts, each after its prefix."""

import numpy as np
import pytest

from fakes.objectives import MINI, SENTINELS, examples_of
from fakes.refuses import refuses
from tasks.objectives import ul2


def test_each_denoiser_has_an_equal_part():
    examples, lengths = examples_of("ul2")
    each = ul2.UL2.example_lengths(lengths, MINI)
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
    for example in examples_of("ul2")[0]:
        if example["inputs"][:4].tolist() == MINI.encode("[S]"):
            assert example["inputs"][-1] == SENTINELS[0]
            assert example["targets"][0] == SENTINELS[0]


def test_prefixes_that_the_vocabulary_cannot_spell_are_refused():
    with refuses("the vocabulary") as refusal:
        ul2.ul2(regular="[漢]").lengths(128, MINI)
    assert "'[漢]'" in refusal.value.why
    with refuses("vocabulary"):
        ul2.UL2.lengths(128)


@pytest.mark.parametrize("inputs", [128, 512, 1024])
def test_rows_of_two_are_long_enough_for_the_longest_beside_the_shortest(inputs):
    targets = ul2.UL2.lengths(inputs, MINI).targets
    lengths = {"inputs": inputs, "targets": targets}
    each = [found.targets for found in ul2.UL2.example_lengths(lengths, MINI)]
    assert each == [found.targets for found in ul2.UL2.lengths_of_each(inputs // 2, MINI)]
    assert max(each) + min(each) <= targets < 2 * max(each)
    with refuses("TASK_FEATURE_LENGTHS['targets']", targets - 1):
        ul2.UL2.example_lengths({"inputs": inputs, "targets": targets - 1}, MINI)


def test_rows_that_hold_the_longest_example_of_all_inputs_have_one():
    each = ul2.UL2.lengths_of_each(512, MINI)
    longest = max(found.targets for found in each)
    lengths = {"inputs": 512, "targets": longest}
    assert ul2.UL2.example_lengths(lengths, MINI) == each
    assert ul2.UL2.example_lengths({**lengths, "targets": longest - 1}, MINI) != each
