"""UL2's denoisers come in equal parts, each after its prefix."""

import numpy as np

from fakes.objectives import MINI, SENTINELS, examples_of
from fakes.refuses import refuses
from tasks.objectives import ul2


def test_each_denoiser_has_an_equal_part():
    examples, _ = examples_of("ul2")
    each = ul2.UL2.lengths_of_each(512, MINI)
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
