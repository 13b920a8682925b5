"""Every mistake in gin files or flags is one sentence with its place, its name and what to do."""

import subprocess
import sys
import types

import pytest

import gin
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
    monkeypatch.setattr("gin.config._LOCATION_PREFIXES", [""])
    monkeypatch.setattr("gin.config._IMPORTS", set())
    monkeypatch.chdir(tmp_path)
    # Each test registers a `train` of its own.
    for registry in ("_REGISTRY", "_INVERSE_REGISTRY"):
        monkeypatch.setattr(gin.config, registry, getattr(gin.config, registry).copy())
    for selector, _ in list(gin.config._REGISTRY.items()):
        if selector.startswith("train_script."):
            gin.config._REGISTRY.pop(selector)
    gin.clear_config()
    yield main
    gin.clear_config()


def parse(text, bindings=(), **options):
    with open("a.gin", "w") as file:
        file.write(text)
    gin_utils.parse_gin_flags([], ["a.gin"], list(bindings), **options)


def sentence(text, bindings=(), **options):
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text, bindings, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_configuration_runs_and_is_locked(entry_point):
    parse(GOOD, BOTH)
    assert gin.get_configurable(entry_point.train)() == ("runs/x", 5, 10)
    assert gin.config_is_locked()


def test_later_bindings_win(entry_point):
    parse(GOOD, [*BOTH, "TRAIN_STEPS = 7"])
    assert gin.get_configurable(entry_point.train)()[1] == 7


@pytest.mark.parametrize("name", ["train", "train_script.train"])
def test_the_command_line_may_name_imports_of_files(entry_point, name):
    parse(GOOD, [*BOTH, f"{name}.eval_period = 3"])
    assert gin.get_configurable(entry_point.train)()[2] == 3


def test_the_command_line_may_name_unbound_imports_of_files(entry_point):
    parse(
        GOOD + "from t5x.loop import triggers\n",
        [*BOTH, "train_script.train.actions = @triggers.next_trigger"],
    )


def test_a_file_that_includes_itself_is_refused():
    assert sentence(f"{GOOD}include 'a.gin'\n", BOTH).startswith(
        "--gin_file=a.gin: the file includes"
    )


@pytest.mark.parametrize(
    ("lines", "chain"),
    [
        ("A = %A", "A refers to itself (A = %A)"),
        ("A = [1, %A]", "A refers to itself (A = %A)"),
        ("A = %B\nB = {'x': %A}", "B refers to itself (B = %A = %B)"),
    ],
)
def test_a_macro_that_refers_to_itself_is_refused(lines, chain):
    assert sentence(f"{GOOD}{lines}\n", BOTH) == f"{chain}: set it to a value."


@pytest.mark.parametrize(
    ("bindings", "says"),
    [
        ([BOTH[0], "TRAIN_STEPS = '5'"], "TRAIN_STEPS is '5', but train.total_steps must be of "),
        (["MODEL_DIR = ''", BOTH[1]], "MODEL_DIR is '', but train.model_dir must not be empty."),
    ],
)
def test_values_are_checked_under_the_name_that_was_set(entry_point, bindings, says):
    def train(model_dir: str, total_steps: int, eval_period: int = 1000, actions=None):
        return None

    train.__module__ = "__main__"
    entry_point.train = train
    assert sentence(GOOD, bindings).startswith(says)


NEAREST = "(the nearest known name is {!r})"
EVAL_PERIOD, TRAIN = NEAREST.format("eval_period"), NEAREST.format("train")
QUOTES = "is not a gin binding: a string needs quotes, as in {}, and a name needs @ or %."


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "train_script.train.evl_period = 1",
            f"10: train_script.train has no parameter 'evl_period' {EVAL_PERIOD}.",
        ),
        (
            "train_script.train:\n  evl_period = 1",
            f"11: train_script.train has no parameter 'evl_period' {EVAL_PERIOD}.",
        ),
        ("train_script.trian.x = 1", f"10: train_script has no 'trian' {TRAIN}."),
        (
            "from t5x import schedules\nX = @schedules.create_lr()",
            "11: schedules has no 'create_lr'",
        ),
        (
            "from t5x import schedulez",
            f"10: There is no module 't5x.schedulez' {NEAREST.format('schedules')}.",
        ),
        (
            "from t5x.examples.t5 import netwrk",
            f"10: There is no module 't5x.examples.t5.netwrk' {NEAREST.format('network')}.",
        ),
        ("import nosuch.thing", "10: There is no module 'nosuch'"),
        (
            "schedules.x.y = 1",
            "10: schedules is not imported by this file: add `from t5x import schedules`.",
        ),
        (
            "trian_script.train.eval_period = 1",
            f"10: trian_script is not imported by this file {NEAREST.format('train_script')}: "
            "import its module first.",
        ),
        (
            "MODEL_DIR = runs/x",
            "10: 'MODEL_DIR = runs/x' " + QUOTES.format("MODEL_DIR = 'runs/x'"),
        ),
        (
            "TRAIN_STEPS = 5 steps",
            "10: 'TRAIN_STEPS = 5 steps' " + QUOTES.format("TRAIN_STEPS = '5 steps'"),
        ),
        (
            "TRAIN_STEPS",
            "10: 'TRAIN_STEPS' cannot be read: Couldn't parse statement, expected ':' or '='.",
        ),
        ("TRAIN_STEPS =", "10: 'TRAIN_STEPS =' cannot be read: Unable to parse value."),
        (
            "include 't5x/configs/runs/pretrian.gin'",
            "10: There is no file t5x/configs/runs/pretrian.gin here, in the search paths or in "
            "the repository; the nearest one is t5x/configs/runs/pretrain.gin.",
        ),
        ("X = @dynamic.nothing()", "10: dynamic is not imported by this file"),
    ],
)
def test_mistakes_in_a_file_name_place_and_nearest(line, expected):
    found = sentence(GOOD + line + "\n", BOTH)
    assert found.startswith(f"a.gin:{expected}")


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        (
            "MODEL_DIR = runs/x",
            "=runs/x: 'MODEL_DIR = runs/x' " + QUOTES.format("--gin.MODEL_DIR=\"'runs/x'\""),
        ),
        ("train.evl_period = 1", f"=1: train has no parameter 'evl_period' {EVAL_PERIOD}."),
        (
            "trian.eval_period = 1",
            f"=1: Nothing is called 'trian' {TRAIN}: check the name, or import its module in a gin "
            "file.",
        ),
        ("train_script.trian.x = 1", f"=1: train_script has no 'trian' {TRAIN}."),
        (
            "TRAIN_STPES = 5",
            f" is set but nothing in this configuration uses it {NEAREST.format('TRAIN_STEPS')}.",
        ),
        ("UNHEARD_OF_THING = 5", " is set but nothing in this configuration uses it."),
    ],
)
def test_mistakes_on_the_command_line_name_the_flag(binding, expected):
    name = binding.partition(" = ")[0]
    assert sentence(GOOD, [*BOTH, binding]) == f"--gin.{name}{expected}"


def test_all_missing_values_are_named_at_once():
    found = sentence(GOOD)
    assert "MODEL_DIR, TRAIN_STEPS are not set" in found
    assert "--gin.MODEL_DIR=" in found
    assert "TRAIN_STEPS is not set" in sentence(GOOD, BOTH[:1])


def test_a_missing_model_asks_for_a_model_file():
    found = sentence(GOOD + "train_script.train.actions = %MODEL\n", BOTH)
    assert "MODEL is not set" in found
    assert "t5x/examples/t5" in found
    assert "--gin.MODEL=" not in found


def test_a_misspelt_macro_of_a_file_is_named_beside_the_missing_one():
    found = sentence(GOOD + "TRAIN_STPES = 5\n", BOTH[:1])
    assert "TRAIN_STEPS is not set (TRAIN_STPES is set but nothing uses it)" in found


def test_a_configuration_without_the_entry_point_is_refused():
    assert "t5x/configs/runs/pretrain.gin" in sentence(HEAD + "from t5x.loop import triggers\n")


def test_the_settings_of_another_entry_point_are_skipped(entry_point):
    del entry_point.train
    entry_point.evaluate = lambda output_dir: output_dir
    other = "import __main__ as eval_script\neval_script.evaluate.output_dir = 'out'\n"
    parse(GOOD + other)
    assert gin.get_configurable(entry_point.evaluate)() == "out"


def test_unsupported_parts_of_upstream_are_refused_by_name():
    for line, name in [
        ("from t5x import models\nM = @models.DecoderOnlyModel()", "DecoderOnlyModel"),
        ("from t5x.contrib.moe import models", "t5x.contrib"),
        ("from t5x.examples.scalable_t5 import network", "t5x.examples.scalable_t5"),
        ("include 't5x/examples/scalable_t5/umt5/pretrain_base.gin'", "umt5/pretrain_base.gin"),
        ("import t5.data.mixtures", "'t5'"),
        ("from t5x import adafactor\nM = @adafactor.HParamMap()", "HParamMap"),
    ]:
        assert name in sentence(GOOD + line + "\n", BOTH)


def test_a_missing_file_names_the_nearest():
    with pytest.raises(ValueError, match=r"gin/ro_t5x_tyni.gin.* nearest one is gin/ro_t5x_tiny"):
        gin_utils.parse_gin_flags([], ["gin/ro_t5x_tyni.gin"], [])


def test_a_module_that_fails_to_import_says_why(tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("import nosuch_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = sentence(GOOD + "import broken_module\n", BOTH)
    assert "broken_module cannot be imported" in found
    assert "'nosuch_dependency'" in found


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


@pytest.mark.parametrize("arg", ["--gin.A", "--gin.A=", "--gin.=1"])
def test_flags_without_a_value_are_refused(arg):
    with pytest.raises(ValueError, match=r"--gin.NAME=value"):
        gin_utils.rewrite_gin_args([arg])


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


@pytest.mark.parametrize(
    ("flag", "status", "said"),
    [
        ("--gin.N=3", 0, "3 steps"),
        ("--gin.N=-1", 2, "Error: N is -1"),
        ("--gin.N=x", 2, "Error: --gin.N=x: "),
        ("--gin.N", 2, "Error: --gin.N has no value"),
    ],
)
def test_an_entry_point_ends_with_a_sentence_and_a_status(tmp_path, flag, status, said):
    (tmp_path / "run.gin").write_text(
        HEAD + "import __main__ as s\ns.run.n = %N\nN = %gin.REQUIRED\n"
    )
    # The message must come from the repository for its traceback to be left out.
    (tmp_path / "run.py").write_text(
        "import gin\nfrom absl import flags\nfrom t5x import gin_utils\n"
        "flags.DEFINE_multi_string('gin_bindings', [], '')\n"
        "def run(n):\n    print(n, 'steps')\n"
        "    if n < 0: gin_utils.rewrite_gin_args([f'--gin.n_is_{n}'])\n"
        "def main(_):\n"
        "    gin_utils.parse_gin_flags([], ['run.gin'], flags.FLAGS.gin_bindings)\n"
        "    gin.get_configurable(run)()\n"
        "gin_utils.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "run.py", flag],
        cwd=tmp_path,
        env={"PYTHONPATH": str(gin_utils.ROOT), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = said.replace("N is -1", "--gin.n_is_-1 has no value")
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_nearest_is_a_phrase_or_nothing():
    assert gin_utils.nearest("tarin", ["train", "eval"]) == " (the nearest known name is 'train')"
    assert gin_utils.nearest("qqqqqq", ["train", "eval"]) == ""


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
