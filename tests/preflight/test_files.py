"""`preflight.files` lists what a run reads from this machine."""

import pytest

from fakes.refuses import refuses
from preflight.aot.recipe import Recipe
from preflight.files import CHECKPOINT, VOCABULARY, list_files
from tasks import corpora, vocabularies
from tasks.corpus.source import CorpusSource

pytestmark = pytest.mark.usefixtures("gin_apart")


def files_of(*bindings, name="ro_t5x_tiny"):
    return list_files(Recipe((f"gin/{name}.gin",), bindings))


def test_a_recipe_reads_its_includes_its_modules_its_vocabulary_and_a_local_corpus():
    files = files_of()
    code = {"gin/ro_t5x_tiny.gin", "gin/shared/tiny.gin", "t5x/configs/runs/pretrain.gin"}
    code |= {"tasks/romanian.py", "t5x/trainer.py", "common/errors.py"}
    assert {path: files[path] for path in code} == dict.fromkeys(code, "")
    assert files["data/ro_mini/ro_mini.model"] == VOCABULARY
    assert files["data/ro_mini/validation.jsonl"] == "the task ro_mini_span_corruption"
    assert not [path for path in files if path.startswith((".venv", "preflight", "/"))]


def test_a_tokenizer_is_its_folder():
    assert files_of(name="ro_bert_tiny")["data/ro_mini/wordpiece"] == VOCABULARY


def test_a_vocabulary_counts_though_it_does_not_exist_and_not_in_a_bucket():
    assert files_of(name="ro_t5x_base")["vocabularies/ro_64000.model"] == VOCABULARY
    files = files_of("VOCABULARY_FILE = 'gs://bucket/ro'", name="ro_roberta_base")
    assert VOCABULARY not in files.values()


@pytest.mark.parametrize("folder", ["runs", "gs://bucket"])
def test_the_checkpoint_that_a_run_starts_from_counts_on_this_machine(folder):
    setting, path = "utils.RestoreCheckpointConfig", f"{folder}/start/checkpoint_3"
    files = files_of(f"{setting}.path = '{path}'", f"{setting}.mode = 'specific'")
    assert [*files.values()].count(CHECKPOINT) == (folder == "runs")
    assert folder != "runs" or files[path] == CHECKPOINT


def test_a_list_of_files_counts_on_this_machine_without_being_read(request):
    files = {"train": ["@lists/mine.txt#10_*", "@gs://bucket/theirs.txt"]}
    source = CorpusSource(files=files)
    task = corpora.add(request.node.name, source, vocabularies.ro_mini_model, cedilla=True)
    bindings = f"MIXTURE_OR_TASK_NAME = '{task.name}'", "train/utils.DatasetConfig.split = 'train'"
    no_evaluation = "train_script.train.train_eval_dataset_cfg = None"
    reads = files_of(*bindings, no_evaluation)
    assert reads["lists/mine.txt"] == f"the task {task.name}"
    assert not [path for path in reads if "theirs" in path]


def test_a_name_that_is_unknown_is_refused():
    with refuses(where="nothing.gin"):
        files_of(name="nothing")
