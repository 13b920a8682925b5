"""What a user asks to see is due when it should be, and compared with a good run of its task."""

import pytest

from t5x.watch import Watch


def steps_filled(watch, stops, evaluations=()):
    before, found = 0, []
    for step in stops:
        if watch.fills_in(step, before, step in evaluations):
            found.append(step)
            before = step
    return found


def test_sentences_are_filled_in_at_evaluations_or_by_a_period_of_their_own():
    given = {"infill_sentences": ("a <extra_id_0>",)}
    assert steps_filled(Watch(**given), range(10, 60, 10), evaluations=(20, 40)) == [20, 40]
    own = Watch(**given, infill_period=25)
    assert steps_filled(own, range(10, 110, 10)) == [30, 50, 80, 100]
    assert steps_filled(Watch(infill_period=1), range(5), evaluations=range(5)) == []


@pytest.mark.parametrize(
    ("step", "note"),
    [(0, "8.150 at step 0"), (60, "4.800 at step 100"), (900, "4.500 at step 300")],
)
def test_the_nearest_step_of_a_good_run_is_named(step, note):
    watch = Watch(expected_loss={0: 8.15, 100: 4.8, 300: 4.5})
    assert watch.reference(step, "toy") == f"  (expected {note})"
    assert Watch().reference(step, "toy") == ""


def test_losses_of_another_task_are_not_compared():
    watch = Watch(expected_loss={0: 8.15}, expected_loss_task="ro_mini")
    assert watch.reference(0, "ro_mini") == "  (expected 8.150 at step 0)"
    assert watch.reference(0, "mine") == ""
    assert watch.known_losses(["ro_mini", "mine"]) == {0: 8.15}
    assert watch.known_losses(["mine"]) == {}
