"""Recipes say the same to upstream's trainer: the model, the data, the steps, the schedule.

tests/golden/recipe_facts.json is what upstream's gin built (make_recipe_facts.py beside it).
"""

import contextlib
import os
import pathlib
import types

import pytest
from golden import recipe_facts

import gin
from fakes import valid_run
from fakes.main_module import as_main
from fakes.paths import ROOT, is_shipped
from t5x import gin_utils
from t5x.examples.t5.network import T5Config
from t5x.train import train

GOLDEN = recipe_facts.golden()
RECIPES = recipe_facts.recipes()
# Upstream's trainer would also restore the data position of the checkpoint that a run starts from,
# so only recipes that start from scratch save it there.
FROM_A_CHECKPOINT = {
    *("quality_base", "quality_tiny", "ro_diacritics_base", "ro_diacritics_tiny"),
    *("entities", "inference", "paraphrase", "summary", "topic", "translation"),
    *("ro_mt5x_base", "ro_mt5x_large", "summarize_base", "summarize_large", "summarize_small"),
}


@pytest.fixture(scope="module")
def our_facts():
    """The facts of each recipe, asked in this process."""
    main = types.ModuleType("__main__")
    main.train = recipe_facts.recorder(train)
    facts = {}
    with as_main(main), contextlib.chdir(ROOT):
        for recipe in RECIPES:
            with valid_run.gin_apart():
                flags = [f"MODEL_DIR = 'runs/{recipe}'"]
                gin_utils.parse_gin_flags([], [f"gin/{recipe}.gin"], flags)
                facts[recipe] = recipe_facts.facts(gin.get_configurable(main.train)())
    return facts


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_says_the_same_to_both_trainers(recipe, our_facts):
    allowed = {"save/save_dataset": (True, False)} if recipe in FROM_A_CHECKPOINT else {}
    assert recipe_facts.differences(our_facts[recipe], GOLDEN[recipe]) == allowed


def test_the_golden_facts_are_of_these_recipes(our_facts):
    assert sorted(GOLDEN) == RECIPES
    assert {r for r in RECIPES if GOLDEN[r]["restore/path"]} == FROM_A_CHECKPOINT


def test_settings_of_the_network_that_only_exist_here_keep_their_defaults():
    both = set(recipe_facts.FIELDS["T5Config"].split())
    ours = {f for f in T5Config.__dataclass_fields__ if f not in (*both, "parent", "name")}
    shared = filter(is_shipped, ROOT.glob("gin/*/*.gin"))
    for path in [*(ROOT / f"gin/{recipe}.gin" for recipe in RECIPES), *shared]:
        bound = [line.split("=")[0] for line in path.read_text().splitlines() if "=" in line]
        assert not [name for name in bound if name.strip().rpartition(".")[2] in ours], path


def test_a_recipe_binds_what_files_of_the_same_path_say_differently():
    """Our facts alone would not show it: our own run and tiny files say what the recipes need."""
    for recipe in RECIPES:
        lines = (ROOT / f"gin/{recipe}.gin").read_text().splitlines()
        included = [line.split("'")[1] for line in lines if line.startswith("include ")]
        assert not [file for file in included if file.startswith("t5x/") and "tiny" in file]
        assert ("gin/shared/tiny.gin" in included) == recipe.endswith("_tiny")
        run = [file.startswith("t5x/configs/runs/") for file in included].index(True)
        assert included[run + 1] == "gin/shared/run.gin"


@pytest.mark.slow
def test_upstream_still_says_so():
    if not (folder := os.environ.get("UPSTREAM_DIR")):
        pytest.skip("UPSTREAM_DIR names no folder that launch/upstream.sh made")
    upstream = pathlib.Path(folder) / "t5x"
    facts = recipe_facts.ask(RECIPES, upstream)
    assert {r: recipe_facts.differences(GOLDEN[r], facts[r]) for r in RECIPES} == {
        recipe: {} for recipe in RECIPES
    }
