"""A language or a user's text gets a recipe that works."""

import ast
import dataclasses
import re

import pytest
import seqio

from fakes.paths import MINI, ROOT, is_shipped
from fakes.shell import check_style
from fakes.task_modules import registered_by
from tasks import corpora
from tasks.corpus.source import CorpusSource
from tasks.languages import table
from tasks.look.sample import draw
from tasks.scaffold.kinds import KINDS
from tasks.scaffold.pretraining import EPOCHS, MOST_EPOCHS, PretrainingRecipe, suitable_size
from tasks.scaffold.token_estimate import bytes_a_token
from tasks.scaffold.training_text import language_text, own_text

LANGUAGES = [language_text(language) for language in table.languages()]


def text_of(language):
    return language_text(table.find(language))


def recipe_of(language, size="base"):
    return PretrainingRecipe(text_of(language), size)


def test_no_two_languages_share_a_name():
    recipes = [PretrainingRecipe(text, "base") for text in LANGUAGES]
    names = [(recipe.text.module, recipe.task, recipe.name) for recipe in recipes]
    for column in zip(*names, strict=True):
        assert len({*column}) == len(recipes)


def test_no_language_takes_the_name_of_a_module_of_the_project():
    """Only Romanian has one already, and then --overwrite must be given."""
    modules = {path.stem for path in filter(is_shipped, (ROOT / "tasks").iterdir())}
    assert modules & {text.module for text in LANGUAGES} == {"romanian"}


@pytest.mark.parametrize("language", ["czech", "ron_Cyrl", "abi_Latn", "ja", None])
def test_the_task_is_registered_by_its_module_and_passes_the_lint(tmp_path, language):
    text = text_of(language) if language else own_text(str(MINI / "train-*.jsonl"), "uk")
    recipe = PretrainingRecipe(text, "tiny")
    path, content = next(iter(recipe.files().items()))
    file = tmp_path / path.rsplit("/", 1)[1]
    file.write_text(content)
    with registered_by(file):
        source = seqio.TaskRegistry.get(recipe.task).source
        if language:
            assert source.config == table.find(language).code
        else:
            assert len(source.peek("train", 2)) == 2
    if language:  # a path of the user may be long
        check_style(file)


@pytest.mark.parametrize("kind", ["t5", "bert"])
def test_several_corpora_become_a_mixture_whose_first_is_read_throughout(tmp_path, kind):
    text = language_text(table.find("czech"), "mixed_cs", "hplt3,finewiki,fineweb2_hq")
    recipe = PretrainingRecipe(text, "tiny", kind)
    files = recipe.files()
    file = tmp_path / "mixed_cs.py"
    file.write_text(files[f"tasks/{recipe.module}.py"])
    assert f"MIXTURE_OR_TASK_NAME = '{recipe.task}'" in files[f"gin/{recipe.name}.gin"]
    names = [f"{recipe.task}_{corpus}" for corpus in text.parts]
    bounded = [f"{name}_{EPOCHS}_epochs" for name in names[1:]]
    with registered_by(file):
        mixture = seqio.MixtureRegistry.get(recipe.task)
        assert {task.name for task in mixture.tasks} == {names[0], *bounded}
        assert "sorted/ces_Latn.map" in seqio.TaskRegistry.get(names[0]).source.name
    check_style(file)
    said = recipe.report([])
    assert "--corpus '@https://data.hplt-project.org/three/sorted/ces_Latn.map" in said
    assert "CC BY-SA 4.0" in said
    assert text.tokens < text_of("czech").tokens


def test_one_corpus_by_name_is_a_task():
    text = language_text(table.find("czech"), corpora="finepdfs")
    module = PretrainingRecipe(text, "tiny").files()["tasks/czech.py"]
    assert 'public.finepdfs("ces_Latn")' in module
    assert "mixtures" not in module


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("a b c d e f g h i j k", ("a b c d e <extra_id_0> h i j",)),
        ("'a' \"b\" {c} $d \\e f g h i j", ("'a' \"b\" {c} $d \\e <extra_id_0> h i j",)),
        ("a b c", None),
    ],
)
def test_the_recipe_fills_in_a_sentence_of_ones_own_text(tmp_path, line, sentences):
    (tmp_path / "a.txt").write_text(f"{line}\n" * 40)
    recipe = PretrainingRecipe(own_text(str(tmp_path), "uk"), "tiny")
    binding = re.search("INFILL_SENTENCES = (.*)", recipe.files()["gin/uk_t5x_tiny.gin"])
    assert (ast.literal_eval(binding[1]) if binding else None) == sentences


def settings_of(gin):
    lines = gin.splitlines()
    return {line.partition("=")[0] for line in lines if line and not line.startswith("#")}


def test_the_recipe_is_that_of_romanian_with_other_names():
    """So that whatever holds for ro_t5x_base and ro_t5x_tiny holds for it."""
    romanian = lambda name: settings_of((ROOT / f"gin/{name}.gin").read_text())
    czech = lambda size: recipe_of("czech", size).files()[f"gin/cs_t5x_{size}.gin"]
    only_romanian = {"tasks.vocabularies.ro_model.path ", "import tasks.romanian"}
    task_file = {"tasks.vocabularies.task_file.path "}
    assert settings_of(czech("base")) - {"import tasks.czech"} - task_file == (
        romanian("ro_t5x_base") - only_romanian
    )
    expected = {"EXPECTED_LOSS ", "EXPECTED_LOSS_TASK ", "import __main__ as train_script"}
    expected |= {"train_script.train.run_eval_before_training ", "import tasks.romanian"}
    added = {"import tasks.czech", "from t5x import partitioning", "  keep "}
    added |= {"partitioning.PjitPartitioner.num_partitions ", "VOCABULARY_FILE "} | task_file
    assert settings_of(czech("tiny")) - added == romanian("ro_t5x_tiny") - expected
    for name, size in KINDS["t5"].sizes.items():
        assert f"num_partitions = {size.partitions}\n" in czech(name)
        assert name == "tiny" or (ROOT / f"t5x/examples/t5/t5_1_1/{name}.gin").exists()


@pytest.mark.parametrize("kind", ["roberta", "modernbert"])
def test_the_recipe_of_an_encoder_is_that_of_romanian_with_other_names(kind):
    romanian = settings_of((ROOT / f"gin/ro_{kind}_base.gin").read_text())
    recipe = PretrainingRecipe(text_of("czech"), "base", kind, phases=kind == "modernbert")
    czech = settings_of(recipe.files()[f"gin/cs_{kind}_base.gin"])
    only_romanian = {
        "import tasks.romanian",
        "utils.SaveCheckpointConfig.period ",
    }
    only_romanian |= {name for name in romanian if name.startswith("tasks.vocabularies.ro_")}
    only_romanian |= {"trainer.Trainer.num_microbatches ", "from t5x import trainer"}
    added = {f"import tasks.czech_{kind}", "utils.SaveCheckpointConfig:"}
    added |= {"tasks.vocabularies.task_file.path "}
    added |= {"  period ", "  keep ", "  save_dataset ", "network.BertConfig.max_length "}
    assert czech - added == romanian - only_romanian
    for phase in recipe.phases * ("long", "decay"):
        bound = settings_of((ROOT / f"gin/ro_modernbert_{phase}.gin").read_text())
        written = settings_of(recipe.files()[f"gin/cs_modernbert_base_{phase}.gin"])
        names = {name.replace("cs_modernbert_base", "ro_modernbert") for name in written}
        assert names == {name.replace("ro_modernbert_base", "ro_modernbert") for name in bound} - {
            "utils.SaveCheckpointConfig.period "
        }


@pytest.mark.parametrize("size", KINDS["modernbert"].sizes)
def test_each_phase_goes_on_where_the_one_before_ends(size):
    recipe = PretrainingRecipe(text_of("czech"), size, "modernbert", phases=True)
    module, *gins = [t for p, t in recipe.files().items() if not p.startswith("launch")]
    assert [p for p in recipe.files() if p.startswith("launch")] == [
        f"launch/{recipe.name}{phase}.sh" for phase in ("", "_long", "_decay")
    ]
    bound = [dict(re.findall(r"^([\w.]+) = ('.*?'|[^ \n]+)", text, re.M)) for text in gins]
    number = lambda phase, name: int(bound[phase][name])
    first, long = number(0, "TRAIN_STEPS"), number(1, "TRAIN_STEPS_RELATIVE")
    assert number(2, "TRAIN_STEPS_RELATIVE") <= long < first
    assert bound[1]["INITIAL_CHECKPOINT_PATH"] == f"'runs/{recipe.name}/checkpoint_{first}'"
    assert bound[2]["COOLDOWN_FROM"] == f"'runs/{recipe.name}_long/checkpoint_{first + long}'"
    lengths = [number(phase, "network.ModernBertConfig.max_length") for phase in (0, 1)]
    assert lengths == [recipe.size.inputs, recipe.size.long_inputs]
    assert len({number(phase, "BATCH_SIZE") * lengths[phase] for phase in (0, 1)}) == 1
    for phase, task in zip(bound, ("", "_long", "_decay"), strict=True):
        assert phase["MIXTURE_OR_TASK_NAME"] == f"'cs_modernbert{task}'"
        assert f'"cs_modernbert{task}",' in module
    assert 'public.fineweb2("ces_Latn", by_cluster=True)' in module
    assert f"runs/{recipe.name}_decay\n" in f"{recipe.report([])}\n"


@pytest.mark.parametrize("names", ["fineweb2_hq", "finewiki,hplt3", "finewiki,fineweb2"])
def test_the_last_phase_reads_no_corpus_that_was_not_named(names):
    """The whole of FineWeb-2 is worse than the part that FineWeb2-HQ is."""
    text = language_text(table.find("czech"), corpora=names)
    module = next(iter(PretrainingRecipe(text, "tiny", "modernbert", phases=True).files().values()))
    assert {*re.findall(r"public\.(\w+)\(", module)} == {*names.split(",")}


def test_every_size_of_a_kind_has_a_gin_file_and_a_template():
    for name, kind in KINDS.items():
        package = {"t5": "t5/t5_1_1", "t5gemma2": "t5gemma2"}.get(name, f"encoder/{name}")
        for size in kind.sizes:
            assert (ROOT / f"t5x/examples/{package}/{size}.gin").exists()
            recipe = PretrainingRecipe(text_of("ja"), size, name)
            task, gin, _ = recipe.files().values()
            assert f"import tasks.{recipe.module}\n" in gin
            assert ('objective="' in task) == (not kind.generates)
            assert ("--byte_fallback" in recipe.report([])) == kind.generates


def test_kinds_of_a_language_share_no_file_task_or_vocabulary():
    recipes = [PretrainingRecipe(text_of("czech"), "base", kind) for kind in KINDS]
    for column in ("task", "vocabulary"):
        assert len({getattr(recipe, column) for recipe in recipes}) == len(KINDS)
    assert len({path for recipe in recipes for path in recipe.files()}) == 3 * len(KINDS)


def test_size_vocabulary_and_steps_follow_from_the_amount_of_text():
    assert recipe_of("rus_Cyrl").steps == 2_000_000
    assert recipe_of("ron_Cyrl").steps == 10_000
    serbian = recipe_of("srp_Latn")
    assert 3.5 < serbian.steps * serbian.epochs_per_step < 4.5
    sizes = [suitable_size(text_of(code)) for code in ("rus_Cyrl", "amh_Ethi", "abi_Latn")]
    assert sizes == ["base", "small", "tiny"]
    assert "little text for base" in recipe_of("amharic", "base").report([])
    assert "little text" not in recipe_of("amharic", "small").report([])
    assert recipe_of("amharic", "small").pieces > recipe_of("abi_Latn", "tiny").pieces


@pytest.mark.parametrize("size", [0.0, 50.0, 20e3, 100e3, 1e6, 50e6])
def test_steps_of_little_text_are_few_and_what_it_lacks_is_said(size):
    text = dataclasses.replace(text_of("abi_Latn"), text_bytes=size, tokens=size / 4)
    recipe = PretrainingRecipe(text, "tiny")
    report = recipe.report([])
    assert not re.search(r"\de[+-]?\d", report)
    assert 100 <= recipe.steps <= 2_000
    assert ("too little text" in report) == recipe.lacks_text == (size < 60e3)
    if size >= 20e3:
        assert recipe.steps * recipe.epochs_per_step < 1.5 * MOST_EPOCHS


@pytest.mark.parametrize("code", ["ja", "cmn_Hani", "kor_Hang"])
def test_a_script_of_thousands_of_characters_falls_back_to_bytes(code):
    assert "--byte_fallback --character_coverage" in recipe_of(code).report([])
    assert "--byte_fallback" not in recipe_of("cs").report([])


def test_the_dry_run_finds_as_many_tokens_as_were_estimated():
    """Of JSON lines, a part of whose bytes is no text."""
    text = own_text(str(MINI / "train-*.jsonl"), "zz")
    recipe = PretrainingRecipe(text, "tiny")
    assert recipe.pieces == 2048
    source = ast.literal_eval(text.source.partition("(")[2].partition(",")[0])
    corpora.add(recipe.task, CorpusSource(source), str(MINI / "ro_mini.model"))
    try:
        sample = draw(
            seqio.TaskRegistry.get(recipe.task), "train", lengths={"inputs": 128, "targets": 29}
        )
    finally:
        seqio.TaskRegistry.remove(recipe.task)
    assert recipe.size.row_tokens == pytest.approx(sample.row_tokens, rel=0.05)
    assert recipe.tokens == pytest.approx(sample.corpus_tokens.number, rel=0.05)


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_a_recipe_reads_a_text_four_times_or_as_often_as_its_fewest_steps_do(size):
    for text_bytes in (3e5, 1e6, 1e7, 1e9):
        text = dataclasses.replace(
            text_of("abi_Latn"), text_bytes=text_bytes, tokens=text_bytes / 4
        )
        recipe = PretrainingRecipe(text, size)
        epochs = recipe.steps * recipe.epochs_per_step
        assert epochs <= 4 or recipe.steps == recipe.size.steps[0]


def test_tokens_are_measured_on_the_text():
    """A letter of Georgian has three bytes, and Chinese has no blanks."""
    plain, georgian = ("ana are mere si pere\n" * 50,), ("ანა არე მერე სი პერე\n" * 50,)
    assert 2.5 < bytes_a_token(georgian, 100) / bytes_a_token(plain, 100) < 3.1
    assert bytes_a_token(("汉字没有空格所以很长。" * 200,), 500) > 3
    assert bytes_a_token(("a",), 500) == bytes_a_token(("",), 500) + 1
