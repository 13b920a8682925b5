"""A user's own rows and a model become a task and a recipe that train."""

import ast
import csv
import dataclasses
import json
import re
import shlex
import subprocess
import sys
import types

import pytest
import seqio
from golden import recipe_facts

import gin
import tasks
from common.errors import UserError
from convert import __main__ as converter
from convert.run.rewrite import gin_of
from convert.sizes import BertSizes
from fakes import small_vocabulary, valid_run
from fakes.clone import Clone
from fakes.convert_fakes import FAMILIES
from fakes.paths import ROOT
from fakes.published_t5 import byt5, sentencepiece, umt5
from fakes.refuses import refuses
from t5x import gin_utils
from t5x.start.vocabulary import verify_matching_vocabs
from t5x.train import train
from tasks import new_job
from tasks.corpus import held_out
from tasks.corpus.records.documents import Columns
from tasks.scaffold import files, finetuning
from tasks.scaffold.starting_model import FAMILIES as FAMILIES_BY_TYPE

SIZES = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=512)
TEXTS = [f"{n} {text[:60]}" for n, text in enumerate(small_vocabulary.TEXTS * 13)][:300]
ROWS = [
    {"text": text, "upper": text.upper(), "even": n % 2, "said": ("nu", "da")[n % 2]}
    for n, text in enumerate(TEXTS)
]


def write(folder):
    """Write the rows in every format."""
    folder.mkdir()
    with open(folder / "rows.csv", "w", newline="") as file:
        made = csv.DictWriter(file, [*ROWS[0]], delimiter=";")
        made.writeheader()
        made.writerows(ROWS)
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    (folder / "empty.jsonl").write_text("")
    for side, name in (("text", "in.txt"), ("upper", "out.txt")):
        (folder / name).write_text("\n".join(" ".join(row[side].split()) for row in ROWS))
    strange = [json.dumps(row | {"upper": "☃" * 9}) for row in ROWS]
    (folder / "strange.jsonl").write_text("\n".join(strange))


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Rows, models to start from, and a root in place of the repository's."""
    write(tmp_path / "data")
    run = tmp_path / "own"
    (run / "checkpoint_300").mkdir(parents=True)
    (run / "config.gin").write_text(gin_of(SIZES))
    small_vocabulary.train(run, texts=[*TEXTS, *(text.upper() for text in TEXTS)])
    (run / "small.model").rename(run / "vocabulary.model")
    for name, model_type in (("a_bert", "bert"), ("a_roberta", "roberta"), ("pieceless", "t5")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"model_type": model_type}))
    (tmp_path / "encoder/checkpoint_3").mkdir(parents=True)
    (tmp_path / "encoder/config.gin").write_text(gin_of(BertSizes(96)))
    for name in ("tasks", "gin"):
        (tmp_path / "root" / name).mkdir(parents=True)
    (tmp_path / "root/gin/theirs.gin").write_text("")
    (tmp_path / "root/tasks/theirs_too.py").write_text("")
    for module in (new_job, files):
        monkeypatch.setattr(module, "ROOT", tmp_path / "root")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    seqio.TaskRegistry.remove("mine")


def run_of(folders, monkeypatch):
    """Return what the recipe gives to `train`."""
    main = types.ModuleType("__main__")
    main.train = recipe_facts.recorder(train)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(tasks, "__path__", [str(folders / "root/tasks"), *tasks.__path__])
    monkeypatch.delitem(sys.modules, "tasks.mine", raising=False)
    monkeypatch.chdir(ROOT)
    with valid_run.gin_apart():
        recipe = str(folders / "root/gin/mine.gin")
        gin_utils.parse_gin_flags([], [recipe], ["MODEL_DIR = 'runs/none'"])
        return gin.get_configurable(main.train)()


FORMATS = {
    "pairs of a CSV with ;": "--rows data/rows.csv --inputs text --targets upper",
    "pairs of JSONL": "--rows data/*.jsonl --inputs {text} --targets upper --prefix shout:",
    "aligned files": "--inputs data/in.txt --targets data/out.txt",
    "classes of a CSV": "--rows data/rows.csv --inputs text --label even",
    "classes that are numbers": "--rows data/rows.jsonl --inputs text --label even",
}


@pytest.mark.parametrize("words", FORMATS.values(), ids=FORMATS)
def test_the_recipe_reads_the_rows_with_the_vocabulary_of_the_model(words, folders, monkeypatch):
    (folders / "data/strange.jsonl").unlink()
    new_job.main(["mine", *words.split(), "--from", "own"])
    run = run_of(folders, monkeypatch)
    cfg, model = run["train_dataset_cfg"], run["model"]
    verify_matching_vocabs(cfg, model)
    task = cfg.provider
    assert run["total_steps"] > 300
    assert run["checkpoint_cfg"].restore.path == str(folders / "own/checkpoint_300")
    assert model.module.config.emb_dim == SIZES.emb_dim
    metric = run["checkpoint_cfg"].save.metric.rpartition("/")[2]
    assert any(metric in function([], []) for function in task.metric_fns)
    assert not run["total_steps"] % run["eval_period"] % 20
    rows = {}
    for split in ("train", "validation"):
        found = task.get_dataset(cfg.task_feature_lengths, split, shuffle=False)
        rows[split] = {row["inputs_pretokenized"].decode() for row in found.as_numpy_iterator()}
        longest = max(len(row["targets"]) for row in found.as_numpy_iterator())
        assert longest <= cfg.task_feature_lengths["targets"]
    assert not rows["train"] & rows["validation"]
    assert len(rows["train"] | rows["validation"]) == len(ROWS)
    assert 20 < len(rows["validation"]) < 100
    assert all(text.startswith("shout:") == ("--prefix" in words) for text in rows["train"])


@pytest.mark.parametrize(
    ("files", "flags", "said"),
    [
        ("train", "", "60 of 100 rows read have the same 'text' as others"),
        ("train", "--group page", "90 of 100 rows read have the same 'page' as others"),
        ("train validation", "", "70 of 100 rows read have the same 'text' as rows of 'train'"),
    ],
)
def test_rows_with_the_same_input_are_counted(files, flags, said, folders, capsys):
    """60 rows have the text of another, 30 more its page, and training has 70 of validation's."""
    rows = [
        {
            "text": TEXTS[i // 2 if i < 60 else i],
            "upper": TEXTS[i].upper(),
            "page": max(i // 2, i - 45),
        }
        for i in range(100)
    ]
    (folders / "set").mkdir()
    for split in files.split():
        trained = rows if files == "train" or split != "train" else [*rows[:70], {**rows[0]}]
        text = "\n".join(json.dumps(row) for row in trained)
        (folders / f"set/{split}.jsonl").write_text(text)
    words = f"--rows set --inputs text --targets upper --from own {flags}"
    new_job.main(["mine", *words.split()])
    assert said in capsys.readouterr().out
    written = (folders / "root/tasks/mine.py").read_text()
    assert ('group="page"' in written) == bool(flags)


def test_the_classes_of_many_sorted_rows_are_those_of_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(new_job, "LABELLED", 60)
    rows = [f"text {i},{label}" for i, label in enumerate("a" * 100 + "b" * 60 + "c" * 40)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]))
    classes = new_job.classes_of(str(tmp_path / "rows.csv"), "text", "label")
    assert set(classes) == set("abc")


@pytest.mark.parametrize("prefix", [None, "translate to Czech: ", """it's a "$HOME" `ls`\\!: """])
def test_the_command_of_inference_writes_the_prefix(prefix, folders, capsys):
    words = [
        "mine",
        "--rows",
        "data/rows.csv",
        "--inputs",
        "text",
        "--targets",
        "upper",
        "--from",
        "own",
    ]
    new_job.main(words + ["--prefix", prefix] * (prefix is not None))
    _, _, printed = capsys.readouterr().out.partition("python -m t5x.infer")
    command, _, _ = printed.partition("\n  bash")
    shell = ["bash", "-c", f"printf '%s\\0' {command}"]
    arguments = subprocess.run(shell, check=True, capture_output=True, text=True).stdout.split("\0")
    flag = "--gin.infer_script.infer.input_prefix="
    bound = [ast.literal_eval(word.removeprefix(flag)) for word in arguments if flag in word]
    assert bound == [prefix] * (prefix is not None)


def test_the_best_of_few_steps_and_rows_of_many_are_within_limits(folders, capsys):
    """A model of Hugging Face is brought in first, and the recipe has its sizes from there."""
    (folders / "tiny").mkdir()
    umt5(folders / "tiny")
    words = [
        "mine",
        "--rows",
        "data/rows.csv",
        "--inputs",
        "text",
        "--label",
        "even",
        "--from",
        "tiny",
    ]
    new_job.main(words)
    said = capsys.readouterr().out
    assert "\n  python -m convert from_hf tiny runs/mine_start\n" in said
    recipe = (folders / "root/gin/mine.gin").read_text()
    assert "include 'runs/mine_start/config.gin'" in recipe
    steps = int(re.search(r"TRAIN_STEPS = (\d+)", recipe)[1])
    assert finetuning.STEPS[0] <= steps <= finetuning.STEPS[1]
    with refuses() as refusal:
        new_job.main(words)
    assert "--overwrite" in refusal.value.to_set
    (folders / "root/gin/mine.gin").write_text("mine")
    new_job.main([*words, "--overwrite"])
    assert (folders / "root/gin/mine.gin").read_text() == recipe


FAMILIES_OF_TEXT = [name for name, family in FAMILIES_BY_TYPE.items() if family.generates]


@pytest.mark.parametrize("model_type", FAMILIES_OF_TEXT)
def test_the_converter_takes_the_command_that_is_printed(model_type, folders, capsys):
    """It asks for the class of a T5 only, since no other network fits several."""
    (folders / "tiny").mkdir()
    tokenizer = json.dumps(sentencepiece(folders / "tiny"))
    (folders / "tiny/tokenizer_config.json").write_text(tokenizer)
    (folders / "tiny/config.json").write_text(json.dumps({"model_type": model_type}))
    words = "mine --rows data/rows.csv --inputs text --label even --from tiny"
    new_job.main(words.split())
    (command,) = re.findall(r"\n  bash convert/convert.sh (.*)", capsys.readouterr().out)
    flags = shlex.split(command)
    assert [*flags, "--model_type", "t5gemma2"][:3] == ["runs/mine", "--model_type", model_type]
    with refuses() as refusal:  # since there is no run yet
        converter.main(flags)
    assert "runs/mine" in str(refusal.value)


@pytest.mark.parametrize(
    ("words", "setting", "value"),
    [
        ("--rows data/rows.csv --inputs text --label upper --from own", "--label", "upper"),
        ("--rows data/strange.jsonl --inputs text --targets upper --from own", "--from", "own"),
        ("--rows data/rows.csv --inputs text --targets upper --from no/such", "--from", "no/such"),
        ("--rows data/rows.csv --inputs text --targets upper --from data", "--from", "data"),
        ("--rows data/rows.csv --inputs text --targets upper --from a_bert", "--from", "a_bert"),
        ("--rows data/rows.csv --inputs text --label even --from encoder", "--from", "encoder"),
        ("--rows data/rows.csv --inputs text --label even --from pieceless", "--from", "pieceless"),
        ("--inputs data/in.txt --label even --from own", "--label", ...),
    ],
)
def test_bad_input_is_refused_by_its_flag(folders, words, setting, value):
    with refuses(setting, value):
        new_job.main(["mine", *words.split()])
    assert not (folders / "root/tasks/mine.py").exists()


@pytest.mark.parametrize("flag", ["--group", "--inputs"])
@pytest.mark.parametrize("seed", range(6))
def test_few_groups_never_hold_most_of_the_rows_out(flag, seed, tmp_path):
    """Their hashes decide, so that the group of nearly all rows may be the first one."""
    names = [f"large {seed}", f"small {seed}"]
    rows = [{"text": str(n), "of": names[n % 10 == 0], "said": f"say {n}"} for n in range(100)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    inputs, group, value = ("text", "of", "of") if flag == "--group" else ("of", None, "of")
    make = lambda: new_job.open_rows(str(tmp_path), inputs, "said", None, "", group)
    try:
        source = make().source
    except UserError:
        with refuses(flag, value):
            make()
        return
    count = lambda split: sum(1 for _ in source.get_dataset(split, shuffle=False))
    assert count("train") + count("validation") == 100
    assert count("train") == 90


def test_a_larger_share_does_not_hold_most_of_the_rows_out_either(folders):
    """Of 300 rows more than the usual share is held out, and the group of nearly all is in it."""
    column = Columns({"inputs": "of"})
    bucket = lambda name: held_out.hashes([(name.encode(),)], column)[0]
    names = [f"group {n}" for n in range(200)]
    small = next(name for name in names if bucket(name) < 1000)
    large = next(name for name in names if 1000 < bucket(name) < 1500)
    rows = [{**row, "of": small if n < 3 else large} for n, row in enumerate(ROWS)]
    (folders / "grouped.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = "--rows grouped.jsonl --inputs text --targets upper --group of --from own"
    with refuses("--group", "of"):
        new_job.main(["mine", *words.split()])
    assert not (folders / "root/tasks/mine.py").exists()


@pytest.mark.parametrize("letter", ["ș", "ş"])
def test_cedillas_are_rewritten_for_a_model_that_has_only_commas(letter, folders, monkeypatch):
    texts = [f"{n} {letter}i {text[:60]}" for n, text in enumerate(small_vocabulary.TEXTS)]
    small_vocabulary.train(folders / "own", texts=texts * 9, character_coverage=1.0)
    (folders / "own/small.model").replace(folders / "own/vocabulary.model")
    rows = [{"text": f"{n} şi", "targets": "1 şi"} for n in range(300)]
    (folders / "cedillas.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = f"--rows cedillas.jsonl --inputs text --targets targets --from {folders / 'own'}"
    new_job.main(["mine", *words.split()])
    cfg = run_of(folders, monkeypatch)["train_dataset_cfg"]
    row = next(cfg.provider.get_dataset(cfg.task_feature_lengths).as_numpy_iterator())
    assert row["targets_pretokenized"].decode() == f"1 {letter}i"
    assert 2 not in row["targets"]


@pytest.mark.parametrize("rows", [50, 120, 400, 1000])
@pytest.mark.parametrize("usual", [0.01, 0.05, 0.19, 0.21, 0.45])
@pytest.mark.parametrize("classes", [(), tuple("abcdefghij")])
def test_no_less_is_held_out_than_holds_out_a_group(rows, usual, classes):
    """The first group of few may begin beyond the most that is held out of other rows."""
    job = finetuning.JobRows({"held_out": {"validation": usual}}, classes, "")
    sample = types.SimpleNamespace(overview=types.SimpleNamespace(documents=rows))
    share = finetuning.FinetuningRecipe("mine", None, job, sample).held_out["validation"]
    assert usual <= share <= max(usual, finetuning.MOST_HELD_OUT)


@pytest.mark.parametrize("name", ["theirs", "theirs_too", "quality", "a-b"])
def test_a_name_that_is_taken_or_no_module_is_refused(folders, name):
    words = "--rows data/rows.csv --inputs text --targets upper --from own"
    with refuses("NAME", name):
        new_job.main([name, *words.split()])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--rows data/rows.csv --inputs txt --targets upper --from own", "even, said, text, upper"),
        ("--rows data/rows.csv --inputs text --label nosuch --from own", "even, said, text, upper"),
        ("--rows data/empty.jsonl --inputs text --targets upper --from own", "empty.jsonl"),
        ("--rows data/empty.jsonl --inputs text --label even --from own", "empty.jsonl"),
        ("--rows nowhere/*.csv --inputs text --targets upper --from own", "nowhere"),
        ("--inputs data/in.txt --targets data/none.txt --from own", "none.txt"),
        (
            "--rows data/rows.csv --inputs text --targets upper --from own --group page",
            "even, said, text, upper",
        ),
        ("--rows data/rows.csv --inputs text", "--from"),
        ("--rows data/rows.csv --inputs text --from own", "--label"),
        ("--rows data/rows.csv --inputs text --targets upper --label even --from own", "both"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(folders, capsys, words, named):
    with pytest.raises(SystemExit, match=r"[12]"):
        new_job.main(["mine", *words.split()])
    said = capsys.readouterr().err
    assert named in said
    assert "Traceback" not in said
    assert not (folders / "root/tasks/mine.py").exists()
    assert not (folders / "root/gin/mine.gin").exists()


SHORT = {
    r"EVAL_PERIOD = .*": "EVAL_PERIOD = 2",
    r"SaveCheckpointConfig.period = .*": "SaveCheckpointConfig.period = 2",
    r"BATCH_SIZE = .*": "BATCH_SIZE = 4",
    r"NUM_EXAMPLES = .*": "NUM_EXAMPLES = 4",
}


@pytest.mark.slow
@pytest.mark.parametrize("make", [umt5, byt5])
def test_the_commands_train_a_model_and_then_its_run(make, tmp_path):
    """Each command runs as it is printed, but for the number of steps."""
    clone = Clone(tmp_path / "clone", None)
    (tmp_path / "tiny").mkdir()
    make(tmp_path / "tiny")
    write(tmp_path / "clone/rows")
    clone.write("in.txt", "\n".join(TEXTS[:3]))
    pairs = f"shouted --rows rows/rows.csv --inputs text --targets said --from {tmp_path / 'tiny'}"
    classes = "evenness --rows rows/rows.jsonl --inputs text --label even --from runs/shouted"
    for words, last in ((pairs, 2), (classes, 4)):
        name = words.split()[0]
        said = clone.run(f"python -m tasks.new_job {words}")
        recipe = (clone.root / f"gin/{name}.gin").read_text()
        for found, instead in SHORT.items():
            recipe = re.sub(found, instead, recipe)
        recipe = re.sub(r"TRAIN_STEPS = \d+", f"TRAIN_STEPS = {last}", recipe)
        (clone.root / f"gin/{name}.gin").write_text(recipe)
        printed = said.partition("convert it:\n")[2].rpartition("\n  ")
        printed = "".join(printed[:2]) + printed[2].partition("\n")[0]
        for command in printed.replace("\\\n", " ").strip().splitlines():
            print(command, clone.run(command), flush=True)
        assert (clone.root / f"runs/{name}/generated_predictions.jsonl").stat().st_size
        assert (clone.root / f"runs/{name}/out/in-predict.jsonl").stat().st_size
        assert (clone.root / f"runs/{name}_hf/checkpoint_{last}/config.json").is_file()
