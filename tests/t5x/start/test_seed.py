"""The seed of a run."""

import jax

from t5x.start.seed import make_seed


def test_a_drawn_seed_differs_and_a_given_one_stays():
    assert make_seed(7, False).number == 7
    drawn = {make_seed(None, False).number for _ in range(3)}
    assert len(drawn) > 1
    assert all(0 <= seed < 2**31 for seed in drawn)


def test_hardware_makes_the_random_bits_if_asked_or_if_the_seed_is_drawn():
    kinds = [make_seed(*choice).step_rng for choice in ((7, False), (7, True), (None, False))]
    assert [str(jax.random.key_impl(key)) for key in kinds] == ["threefry2x32", "rbg", "rbg"]
