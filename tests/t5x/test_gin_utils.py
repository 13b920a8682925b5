"""Every mistake in gin files or flags is one sentence with its place, its name and what to do."""

import sys
import types

import pytest

import gin
from fakes import valid_run
from fakes.refuses import refuses
from t5x import gin_utils

HEAD = "from __gin__ import dynamic_registration\n"
MAIN = HEAD + "import __main__ as train_script\n"
GOOD = MAIN + (
    "MODEL_DIR = %gin.REQUIRED\nTRAIN_STEPS = %gin.REQUIRED\nEVAL_PERIOD = 10\n"
    "train_script.train:\n  model_dir = %MODEL_DIR\n  total_steps = %TRAIN_STEPS\n"
    "  eval_period = %EVAL_PERIOD\n"
)
BOTH = ["MODEL_DIR = 'runs/x'", "TRAIN_STEPS = 5"]


@pytest.fixture(autouse=True)
def entry_point(monkeypatch, tmp_path):
    """An entry point `__main__` with a `train`, in an empty folder; gin cleared."""
    main = types.ModuleType("__main__")

    def train(model_dir, total_steps, eval_period=1000, actions=None):
        return model_dir, total_steps, eval_period

    main.train = train
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)
    with valid_run.gin_apart():  # each test registers a `train` of its own
        yield main


def parse(text, bindings=(), **options):
    with open("a.gin", "w") as file:
        file.write(text)
    gin_utils.parse_gin_flags([], ["a.gin"], list(bindings), **options)


def refusal(text, bindings=(), **options):
    with refuses() as refusal:
        parse(text, bindings, **options)
    assert "\n" not in str(refusal.value)
    return refusal.value


def test_a_good_configuration_runs_and_is_locked(entry_point):
    parse(GOOD, BOTH)
    assert gin.get_configurable(entry_point.train)() == ("runs/x", 5, 10)
    assert gin.config_is_locked()


def test_a_path_in_a_setting_begins_at_home(entry_point, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ana")
    parse(GOOD, ["MODEL_DIR = '~/runs/x'", "TRAIN_STEPS = 5"])
    assert gin.get_configurable(entry_point.train)()[0] == "/home/ana/runs/x"
    assert "/home/ana/runs/x" in gin.config_str()


@pytest.mark.parametrize("name", ["train", "train_script.train"])
def test_the_command_line_may_name_imports_of_files(entry_point, name):
    parse(GOOD, [*BOTH, f"{name}.eval_period = 3"])
    assert gin.get_configurable(entry_point.train)()[2] == 3


def test_the_command_line_may_name_unbound_imports_of_files():
    parse(
        GOOD + "from t5x.loop import triggers\n",
        [*BOTH, "train_script.train.actions = @triggers.next_trigger"],
    )


# A line of a file, its number, and names that the message has: the wrong one and the nearest.
MISTAKES = [
    ("A = [1, %A]", "", "A"),
    ("A = %B\nB = {'x': %A}", "", "B = %A = %B"),
    ("train_script.train:\n  evl_period = 1", "11", "'evl_period' 'eval_period'"),
    ("train_script.trian.x = 1", "10", "'trian' 'train'"),
    ("from t5x import schedules\nX = @schedules.create_lr()", "11", "'create_lr'"),
    ("from t5x.examples.t5 import netwrk", "10", "'t5x.examples.t5.netwrk' 'network'"),
    ("import nosuch.thing", "10", "'nosuch'"),
    ("schedules.x.y = 1", "10", "from t5x import schedules"),
    ("trian_script.train.eval_period = 1", "10", "trian_script 'train_script'"),
    ("MODEL_DIR = runs/x", "10", "MODEL_DIR = 'runs/x'"),
    ("TRAIN_STEPS =", "10", "'TRAIN_STEPS ='"),
    ("include 't5x/configs/runs/pretrian.gin'", "10", "t5x/configs/runs/pretrain.gin"),
    ("X = @dynamic.nothing()", "10", "dynamic"),
    ("from t5x.examples.scalable_t5 import network", "10", "t5x.examples.scalable_t5"),
    ("import t5.data.mixtures", "10", "'t5'"),
    ("from t5x import adafactor\nM = @adafactor.HParamMap()", "11", "HParamMap"),
    ("import broken_module", "10", "broken_module 'nosuch_dependency'"),
]


@pytest.mark.parametrize(("line", "place", "names"), MISTAKES)
def test_mistakes_in_a_file_name_place_and_nearest(line, place, names, tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("import nosuch_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    error = refusal(f"{GOOD}{line}\n", BOTH)
    assert error.where == (f"a.gin:{place}: " if place else "")
    for name in names.split() if "=" not in names else [names]:
        assert name in str(error)


@pytest.mark.parametrize(
    ("binding", "names"),
    [
        ("MODEL_DIR = runs/x", ["--gin.MODEL_DIR=\"'runs/x'\""]),
        ("train.evl_period = 1", ["'evl_period'", "'eval_period'"]),
        ("train_script.trian.x = 1", ["'trian'", "'train'"]),
        ("TRAIN_STPES = 5", ["'TRAIN_STEPS'"]),
        ("UNHEARD_OF_THING = 5", []),
        ("tarin/train_script.train.eval_period = 5", ["'tarin'", "'train'"]),
        ("TRAIN_STEPS = 1e400", ["TRAIN_STEPS is inf"]),
    ],
)
def test_mistakes_on_the_command_line_name_the_flag(binding, names):
    entered = "A = @train/train_script.train\n"
    error = refusal(GOOD + entered, [*BOTH, binding])
    assert f"{error.where}{error.setting}".startswith(f"--gin.{binding.partition(' = ')[0]}")
    assert all(name in str(error) for name in names)


def test_a_file_whose_macro_or_scope_is_a_slip_gives_a_warning(caplog):
    slips = "EVAL_PERIODS = 3\ntrian/train_script.train.eval_period = 5\nOF_ANOTHER_COMMAND = 1\n"
    parse(GOOD + slips + "A = @train/train_script.train\n", BOTH)
    said = "\n".join(caplog.messages)
    assert "EVAL_PERIODS" in said
    assert "'trian' (the nearest known name is 'train')" in said
    assert "OF_ANOTHER_COMMAND" not in said


@pytest.mark.parametrize(
    ("text", "bindings", "setting", "named"),
    [
        (GOOD, [], "MODEL_DIR, TRAIN_STEPS", "--gin.MODEL_DIR="),
        (GOOD, BOTH[:1], "TRAIN_STEPS", "--gin.TRAIN_STEPS="),
        (GOOD + "TRAIN_STPES = 5\n", BOTH[:1], "TRAIN_STEPS", "TRAIN_STPES"),
        (GOOD + "train_script.train.actions = %MODEL\n", BOTH, "MODEL", "t5x/examples/t5"),
        (HEAD + "from t5x.loop import triggers\n", [], "train", "t5x/configs/runs/pretrain.gin"),
    ],
)
def test_all_that_is_missing_is_named_at_once(text, bindings, setting, named):
    error = refusal(text, bindings)
    assert error.setting == setting
    assert named in error.why + error.to_set


def test_the_settings_of_another_entry_point_are_skipped(entry_point):
    del entry_point.train
    entry_point.evaluate = lambda output_dir: output_dir
    other = "import __main__ as eval_script\neval_script.evaluate.output_dir = 'out'\n"
    parse(GOOD + other)
    assert gin.get_configurable(entry_point.evaluate)() == "out"


def test_search_paths_come_before_the_repository(tmp_path):
    folder = tmp_path / "mine" / "t5x" / "configs" / "runs"
    folder.mkdir(parents=True)
    (folder / "pretrain.gin").write_text(GOOD)
    (tmp_path / "b.gin").write_text("include 't5x/configs/runs/pretrain.gin'\n")
    gin_utils.parse_gin_flags([str(tmp_path / "mine")], ["b.gin"], BOTH)


def test_flags_are_rewritten():
    args = ["x", "--gin_file=a.gin", "--gin.train/utils.DatasetConfig.split='a=b'", "--gin.A=1"]
    assert gin_utils.rewrite_gin_args(args) == [
        "x",
        "--gin_file=a.gin",
        "--gin_bindings=train/utils.DatasetConfig.split = 'a=b'",
        "--gin_bindings=A = 1",
    ]


def test_the_saved_configuration_parses_to_itself(tmp_path, entry_point):
    class Writer:
        def write_texts(self, step, texts):
            self.written = step, texts

        def flush(self):
            pass

    parse(GOOD, BOTH)
    gin.get_configurable(entry_point.train)()
    writer = Writer()
    gin_utils.summarize_gin_config(str(tmp_path / "run"), writer, 3)
    saved = (tmp_path / "run" / "config.gin").read_text()
    assert "MODEL_DIR = 'runs/x'" in saved
    step, texts = writer.written
    assert step == 3
    assert "runs/x" in texts["operative_config"]
    gin.clear_config()
    gin_utils.parse_gin_flags([], [str(tmp_path / "run" / "config.gin")], [])
    assert gin.config_str() == saved


def test_values_may_be_computed_in_a_gin_file(entry_point):
    lines = [
        "from t5x import gin_utils",
        "TRAIN_STEPS = @gin_utils.sum_fn()",
        "gin_utils.sum_fn.var1 = 1000",
        "gin_utils.sum_fn.var2 = 7",
        "MODEL_DIR = @gin_utils.string_split_fn()",
        "gin_utils.string_split_fn.text = 'runs/x,runs/y'",
        "gin_utils.string_split_fn.separator = ','",
        "gin_utils.string_split_fn.index = 1",
        "EVAL_PERIOD = @gin_utils.bool_fn()",
        "gin_utils.bool_fn.var1 = 0",
    ]
    parse("\n".join([GOOD, *lines, ""]))
    assert gin.get_configurable(entry_point.train)() == ("runs/y", 1007, False)
    assert gin_utils.string_split_fn("a-b-c", "-", 1) == ["a", "b-c"]
