"""Commands find tasks by name, in the modules that they are given."""

import pytest

from tasks import registered


def test_every_module_of_tasks_is_known_and_no_command():
    found = registered.every_module()
    assert {"tasks.romanian", "tasks.jobs.diacritics.task", "tasks.jobs.summarization"} <= set(
        found
    )
    assert not [name for name in found if name.endswith("__main__")]


def test_an_unknown_task_gets_the_nearest():
    with pytest.raises(ValueError, match=r"did you mean ro_mini_ul2\b.*\? Else give the module"):
        registered.find("ro_mini_ul", "TASK", ["tasks.romanian"])


def test_a_mixture_names_its_tasks():
    import seqio

    from tasks import mixtures

    name = "mixture_of_test_registered"
    mixtures.add(name, {"ro_mini_ul2": 1, "ro_mini_prefix_lm": 1})
    try:
        with pytest.raises(ValueError, match="a mixture: give one of its tasks, ro_mini_prefix_lm"):
            registered.find(name, "TASK", ["tasks.romanian"])
    finally:
        seqio.MixtureRegistry.remove(name)
