"""A language is added to a model that exists: the files and the commands."""

import ast
import json
import re
import shlex

import pytest
import seqio
import transformers
from tokenizers import Tokenizer

from convert.run.rewrite import gin_of
from convert.sizes import KINDS
from fakes import published, tokenizer_files
from fakes.clone import Clone
from fakes.convert_fakes import FAMILIES
from fakes.paths import MINI
from fakes.published_t5 import byt5, umt5
from fakes.refuses import refuses
from fakes.shell import check_style
from fakes.task_modules import registered_by
from tasks import new_language
from tasks.scaffold import starting_model

OTHER = "საქართველოს პარლამენტი არის კავკასიაში. ქვეყანა არის საქართველო და მარილი არის თეთრი."


def encoder(folder, family, make, tokenizer_class):
    made = folder.with_name("tokenizer")
    make(made)
    size = Tokenizer.from_file(f"{made}/tokenizer.json").get_vocab_size()
    published.published_encoder(folder, family, vocab_size=size)
    for file in made.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = tokenizer_class
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


MODELS = {
    "UMT5ForConditionalGeneration": umt5,
    "T5ForConditionalGeneration": byt5,
    "XLMRobertaForMaskedLM": lambda folder: encoder(
        folder, "xlm-roberta", tokenizer_files.unigram, "XLMRobertaTokenizer"
    ),
    "ModernBertForMaskedLM": lambda folder: encoder(
        folder, "modernbert", tokenizer_files.byte_bpe, "PreTrainedTokenizerFast"
    ),
}
SHORT = {
    r"TASK_FEATURE_LENGTHS = .*": "TASK_FEATURE_LENGTHS = {'inputs': 64, 'targets': 64}",
    r"TRAIN_STEPS = .*": "TRAIN_STEPS = 2\nBATCH_SIZE = 4\nEVAL_STEPS = 1\nEVAL_PERIOD = 2",
    r"warmup_steps = .*": "warmup_steps = 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", MODELS)
def test_the_commands_lead_to_a_model_of_the_original_class(tmp_path, architecture):
    """Each command runs as it is printed, but for the number of steps."""
    clone = Clone(tmp_path / "clone", None)
    folder = tmp_path / "tiny"
    folder.mkdir()
    MODELS[architecture](folder)
    text = [json.dumps({"text": f"{OTHER} {n}"}, ensure_ascii=False) for n in range(300)]
    clone.write("data/ka.jsonl", "\n".join(text))
    said = clone.run(
        "python -m tasks.new_language --corpus data/ka.jsonl --name ka --from "
        f"{folder} --keep 'ro={MINI}/train-*.jsonl'"
    )
    recipe = (clone.root / "gin/ka.gin").read_text()
    for found, instead in SHORT.items():
        recipe, count = re.subn(found, instead, recipe)
        assert count == 1, found
    (clone.root / "gin/ka.gin").write_text(recipe)
    printed = said.partition("one after the other")[2].partition("\n")[2].partition("\n\n")[0]
    commands = printed.replace("\\\n", " ").strip().splitlines()
    assert len(commands) == (6 if architecture.startswith("T5") else 8)
    for command in commands:
        command = re.sub(r"checkpoint_\d+", "checkpoint_2", command)
        said = clone.run(re.sub(r"RELATIVE=\d+", "RELATIVE=2", command))
        print(command, said, flush=True)
    (made,) = (clone.root / "runs/ka_decay_hf").glob("checkpoint_4")
    model = getattr(transformers, architecture).from_pretrained(made)
    assert model.config.architectures == [architecture]
    tokenizer = transformers.AutoTokenizer.from_pretrained(made)
    ids = tokenizer(OTHER).input_ids
    assert max(ids) < model.config.vocab_size
    assert tokenizer.unk_token_id not in ids or not architecture.startswith("UMT5")


def test_every_family_of_the_converter_is_known_or_refused_by_name():
    families = {name for kind in KINDS for name in kind.families}
    assert families - starting_model.FAMILIES.keys() == {"bert"}
    assert starting_model.FAMILIES.keys() <= families


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Models to go on from, and a root in place of the repository's."""
    for name, model_type in (("tiny_t5", "umt5"), ("a_bert", "bert"), ("no_config", None)):
        (tmp_path / name).mkdir()
        if model_type:
            (tmp_path / name / "config.json").write_text(json.dumps({"model_type": model_type}))
    run = tmp_path / "own"
    (run / "checkpoint_300").mkdir(parents=True)
    (run / "config.gin").write_text(gin_of(FAMILIES["t5_1_1"]))
    (tmp_path / "unfinished/checkpoint_300.tmp").mkdir(parents=True)
    (tmp_path / "unfinished/config.gin").write_text(gin_of(FAMILIES["t5_1_1"]))
    (tmp_path / "text.txt").write_text("\n".join(f"ana are {n} mere" for n in range(300)))
    for name in ("tasks", "gin", "launch"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(new_language, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(folders, capsys, *words):
    """The commands that are printed, the task's module and the recipe."""
    new_language.main([*words])
    said = capsys.readouterr().out
    paths = [folders / line.split()[1] for line in said.splitlines() if line.startswith("wrote ")]
    return said, *(path.read_text() for path in paths[:2])


@pytest.mark.parametrize("when", [(), ("--decay_only",)])
def test_the_new_language_is_half_of_what_is_read(folders, capsys, when):
    """From the beginning, or in the branch that decays, which goes on with the others."""
    words = ["georgian", "--from", "tiny_t5", "--keep", "ron,bulgarian,eng", *when]
    said, module, recipe = made(folders, capsys, *words)
    (folders / "made.py").write_text(module)
    names = [f"ka_tiny_t5_{language}" for language in ("ka", "ro", "bg", "eng")]
    with registered_by(folders / "made.py"):
        rates = seqio.MixtureRegistry.get("ka_tiny_t5")
        shares = {task.name: rates.get_rate(task) for task in rates.tasks}
        assert shares.keys() == {*names}
        assert shares[names[0]] == pytest.approx(sum(shares[name] for name in names[1:]))
        others = seqio.MixtureRegistry.get("ka_tiny_t5_others")
        assert {task.name for task in others.tasks} == {*names[1:]}
    check_style(folders / "made.py")
    assert "'runs/ka_tiny_t5_start/checkpoint_0'" in recipe
    assert "--model_type umt5" in said
    assert said.index("vocabulary.trim") < said.index("vocabulary.extend")
    assert ("MIXTURE_OR_TASK_NAME = 'ka_tiny_t5_others'\n" in recipe) == bool(when)
    assert ("--gin.MIXTURE_OR_TASK_NAME=\"'ka_tiny_t5'\"" in said) == bool(when)


def test_files_to_keep_are_read_as_the_flags_say(folders, capsys):
    (folders / "kept.txt").write_text("one\ntwo\n\nthree\n" * 20)
    words = ["georgian", "--from", "tiny_t5", "--keep", "eng=kept.txt"]
    _, module, _ = made(folders, capsys, *words, "--documents", "paragraphs")
    assert 'documents="paragraphs"' in module


def test_with_all_nothing_is_cut_and_a_run_goes_on_from_its_last_step(folders, capsys):
    said, _, recipe = made(folders, capsys, "georgian", "--from", "own", "--keep", "all")
    assert "vocabulary.trim" not in said
    assert "from_hf" not in said
    assert "no other language is read" in said
    assert "'runs/ka_own_start/checkpoint_300'" in recipe
    steps = int(re.search(r"TRAIN_STEPS = (\d+)", recipe)[1])
    assert f"ka_own/checkpoint_{steps}'" in said
    assert steps > 300


@pytest.mark.parametrize("folder", ["a model", "its $own", "model's", "a*b"])
@pytest.mark.parametrize("is_run", [False, True])
def test_a_path_is_one_word_of_the_commands_and_one_string_of_the_recipe(
    folders, capsys, folder, is_run
):
    """A run of bytes is read from where it is, by the recipe too."""
    (folders / "tiny_t5").rename(folders / folder)
    if is_run:
        (folders / folder / "checkpoint_300").mkdir()
        bytes_of = gin_of(FAMILIES["t5_1_1"]) + "\nseqio.ByteVocabulary.extra_ids = 100\n"
        (folders / folder / "config.gin").write_text(bytes_of)
    said, _, recipe = made(folders, capsys, "georgian", "--from", folder, "--keep", "ron")
    printed = said.partition("one after the other")[2].partition("\n")[2].partition("\n\n")[0]
    words = shlex.split(printed.replace("\\\n", " "))
    assert (f"{folder}/config.gin" if is_run else folder) in words
    start = f"{folder}/checkpoint_300" if is_run else "runs/"
    restored = ast.literal_eval(re.search(r"\n  path = (.*)", recipe)[1])
    assert restored.startswith(start)


@pytest.mark.parametrize(
    ("words", "setting", "value", "named"),
    [
        ("georgian --from tiny_t5 --keep ron,kat", "--keep", ..., "'ka'"),
        ("georgian --from tiny_t5 --keep ron,ro", "--keep", ..., "'ro'"),
        ("--corpus text.txt --name ro --from tiny_t5 --keep ron", "--keep", ..., "'ro'"),
        ("georgian --from tiny_t5 --keep others=text.txt,ron", "--keep", ..., "'others'"),
        ("--corpus text.txt --name is --from tiny_t5 --keep ron", "--name", "is", ""),
        ("georgian --from unfinished --keep ron", "--from", "unfinished", "checkpoint"),
        ("georgian --from a_bert --keep ron", "--from", "a_bert", ""),
        ("georgian --from no_config --keep ron", "--from", "no_config", "model_type"),
        ("georgian --from no/such_model --keep ron", "--from", "no/such_model", ""),
        ("georgian --from tiny_t5 --keep klingonese", None, ..., "klingonese"),
        ("georgian --from tiny_t5 --keep serbian", "serbian", ..., "srp_Latn"),
        ("georgian --from tiny_t5 --keep en=nowhere/*.txt", None, ..., "nowhere"),
        ("georgian --from tiny_t5", "--from and --keep", ..., ""),
        ("georgian --keep ron", "--from and --keep", ..., ""),
        ("georgian --decay_only", "--from and --keep", ..., ""),
        ("georgian --from tiny_t5 --keep all --decay_only", "--decay_only", ..., ""),
        ("georgian --from tiny_t5 --keep ron --size base", "--size", ..., ""),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(folders, words, setting, value, named):
    with refuses(setting, value) as refusal:
        new_language.main(words.split())
    assert named in str(refusal.value)
    assert not [*folders.glob("[tgl]*s/*"), *folders.glob("gin/*"), *folders.glob("launch/*")]
