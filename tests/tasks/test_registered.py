"""Commands find tasks by name, in the modules that they are given."""

from fakes.refuses import refuses
from tasks import registered


def test_every_module_of_tasks_is_known_and_no_command():
    found = registered.every_module()
    assert {"tasks.romanian", "tasks.jobs.diacritics.task", "tasks.jobs.summarization"} <= set(
        found
    )
    assert not [name for name in found if name.endswith("__main__")]


def test_an_unknown_task_gets_the_nearest():
    with refuses("TASK", "ro_mini_ul") as refusal:
        registered.find("ro_mini_ul", "TASK", ["tasks.romanian"])
    assert "ro_mini_ul2" in refusal.value.to_set


def test_a_mixture_names_its_tasks():
    import seqio

    from tasks import mixtures

    name = "mixture_of_test_registered"
    mixtures.add(name, {"ro_mini_ul2": 1, "ro_mini_prefix_lm": 1})
    try:
        with refuses("TASK", name) as refusal:
            registered.find(name, "TASK", ["tasks.romanian"])
        assert "ro_mini_prefix_lm, ro_mini_ul2" in refusal.value.to_set
    finally:
        seqio.MixtureRegistry.remove(name)
