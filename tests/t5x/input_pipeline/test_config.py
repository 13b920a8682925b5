"""Which data a gin file names, and how a wrong name is reported."""

import sys

import gin
from fakes import toy
from fakes.refuses import refuses


def test_an_unregistered_task_names_the_nearest():
    with refuses("MIXTURE_OR_TASK_NAME", "toy_cpoy") as refusal:
        _ = toy.data(mixture_or_task_name="toy_cpoy").provider
    assert "'toy_copy'" in refusal.value.why
    assert toy.data(mixture_or_task_name=toy.MIXED).provider.name == toy.MIXED


def test_the_tasks_of_a_mixture_that_have_the_split_are_known():
    tasks = toy.data("validation", mixture_or_task_name=toy.MIXED).tasks_with_split
    assert {task.name for task in tasks} == {toy.TASK, toy.BARE}
    assert toy.data("test").tasks_with_split == []


def test_a_module_is_imported_for_its_tasks(tmp_path, monkeypatch):
    (tmp_path / "needs_another.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    with refuses("DatasetConfig.module", "needs_another"):
        toy.data(module="needs_another")


def test_a_module_may_have_configurables_of_its_own_though_gin_is_locked(tmp_path, monkeypatch):
    text = "import gin\n@gin.configurable(module='late_task')\ndef late(): pass\n"
    (tmp_path / "late_task.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    gin.finalize()
    try:
        toy.data(module="late_task")
        assert gin.config_is_locked()
    finally:
        gin.clear_config()
    assert "late_task" in sys.modules
