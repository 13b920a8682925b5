"""What a user adds to gin/, launch/, tasks/ and vocabularies/ turns no test red."""

import shutil
import sys

import pytest

from convert.run.rewrite import gin_of
from convert.sizes import T5Sizes
from fakes import small_vocabulary
from fakes.clone import Clone
from fakes.paths import PACKAGES, ROOT, is_shipped

# Files that no rule of the repository's holds for.
RECIPE = """\
include 't5x/examples/t5/t5_1_1/small.gin'
include 't5x/configs/runs/pretrain.gin'
import tasks.mine
MIXTURE_OR_TASK_NAME = 'mine'
TASK_FEATURE_LENGTHS = {'inputs': 10, 'targets': 10}
nothing.has_this_name = 1
"""
FILES = {
    **dict.fromkeys(("gin/mine.gin", "gin/mine/part.gin", "gin/shared/mine.gin"), RECIPE),
    **dict.fromkeys(("t5x/configs/runs/mine.gin", "t5x/examples/t5/mt5/mine.gin"), RECIPE),
    "launch/mine.sh": "export MINE=${MINE_DIR:-x}\npython -m tasks.mine $1\n",
    "tasks/mine.py": """\
import os, jax
import gin
from t5x import losses
from tasks import corpora, vocabularies
from tasks.corpus.source import CorpusSource
@gin.configurable
def my_metric(targets, predictions): return {"mine": float(os.environ["MINE"])}
corpora.add("mine", CorpusSource("./texts"), vocabularies.ro_mini_model)
""",
    "tasks/mine_too/of_a_folder.py": "from convert import to_hf\nimport transformers\n",
}
# The tests that read folders of the repository.
TESTS = ("gin", "docs", "benchmarks", "tasks/scaffold", "tasks/test_new_job.py")
TESTS += ("test_layering.py", "test_contract.py")
TESTS += ("launch/test_train.py", "launch/test_environment.py")


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_user_is_none_of_the_repository(name):
    assert not is_shipped(ROOT / name)


def test_other_files_are_the_repositorys():
    for folder, pattern in (("gin", "*.gin"), ("launch", "*.sh"), ("tasks", "*.py")):
        assert any(map(is_shipped, (ROOT / folder).rglob(pattern)))
    for package in {*PACKAGES} - {"tasks"}:
        assert all(map(is_shipped, (ROOT / package).rglob("*.py")))


@pytest.mark.slow
def test_the_tests_of_the_repository_pass_beside_files_of_every_kind(tmp_path):
    clone = Clone(tmp_path, None)
    shutil.copytree(ROOT / "tests", tmp_path / "tests")
    for name, text in FILES.items():
        clone.write(name, text)
    clone.write("runs/mine/config.gin", gin_of(T5Sizes(512)))
    (tmp_path / "runs/mine/checkpoint_3").mkdir()
    model = small_vocabulary.train(tmp_path)
    for name in ("runs/mine/vocabulary.model", "vocabularies/mine.model", "data/mine/mine.model"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(model, tmp_path / name)
    rows = [f"{text} {n},{n % 2}" for n, text in enumerate(["Ana are mere", "Ion are pere"] * 60)]
    clone.write("mood.csv", "\n".join(["text,mood", *rows]))

    clone.run("python -m tasks.new_language czech --size base")
    own = "--corpus 'data/ro_mini/*.jsonl' --size tiny"
    clone.run(f"python -m tasks.new_language {own} --name zz")
    clone.run(f"python -m tasks.new_language {own} --name zz_bert --kind bert")
    clone.run(
        "python -m tasks.new_job mood --rows mood.csv --inputs text --label mood --from runs/mine"
    )
    paths = " ".join(f"tests/{name}" for name in TESTS)
    output = clone.run(f"{sys.executable} -m pytest --numprocesses 0 {paths}")
    assert " passed" in output
