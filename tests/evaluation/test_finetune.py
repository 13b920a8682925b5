"""Fine-tuning with seeds: the model's own network, the commands, means, and what is refused."""

import json
import pathlib
import shutil
import statistics

import pytest

from common.gin_reader import Bindings
from convert.run import loss_curve
from convert.run.model_dir import TrainedRun
from convert.run.rewrite import gin_of
from convert.sizes import T5Sizes
from evaluation import finetune
from fakes.convert_fakes import NETWORKS
from fakes.paths import ROOT
from fakes.refuses import refuses

FLAGS = ("topic", "--language", "ro")
SIZES = "network.T5Config.vocab_size = 2048\nnetwork.T5Config.emb_dim = 128\n"


@pytest.fixture
def run(tmp_path) -> TrainedRun:
    """A run with a saved network and vocabulary, and no checkpoint that could be read."""
    folder = tmp_path / "start"
    folder.mkdir()
    (folder / "config.gin").write_text(
        f"from t5x.examples.t5 import network\n{SIZES}network.T5Config.dtype = 'bfloat16'\n"
        "network.T5Config.dropout_rate = 0.3\nTRAIN_STEPS = 7\n"
    )
    shutil.copy(ROOT / "data/ro_mini/ro_mini.model", folder / "vocabulary.model")
    return TrainedRun(str(folder), {7: f"{folder}/checkpoint_7"})


def test_the_network_and_vocabulary_are_the_models_and_nothing_else(run):
    text = finetune.model_gin(run)
    bindings = Bindings.read(text)
    sizes = bindings.of("T5Config")
    assert (sizes["vocab_size"], sizes["emb_dim"], sizes["dtype"]) == (2048, 128, "bfloat16")
    assert "dropout_rate" not in sizes  # the recipe's
    assert "TRAIN_STEPS" not in text
    vocabulary = bindings.of("SentencePieceVocabulary")
    assert vocabulary["sentencepiece_model_file"] == f"{run.folder}/vocabulary.model"
    assert vocabulary["extra_ids"] == 0  # its sentinels are pieces


def test_bytes_are_bound_as_the_vocabulary_and_the_recipe_says_the_dtype_unless_the_run_does(run):
    config = pathlib.Path(run.folder, "config.gin")
    text = config.read_text().replace("network.T5Config.dtype = 'bfloat16'\n", "")
    config.write_text(f"{text}import seqio\nseqio.ByteVocabulary.extra_ids = 100\n")
    text = finetune.model_gin(run)
    assert "VOCABULARY = @seqio.ByteVocabulary()" in text
    assert "sentencepiece_model_file" not in text
    assert "T5Config.dtype" not in text


def test_each_seed_trains_and_is_measured_by_its_best_checkpoint(tmp_path):
    train, test = finetune.commands("topic", "ro", "/m/checkpoint_7", tmp_path, 3, ["--gin.X=1"])
    folder = tmp_path / "seed_3"
    files = ["--gin_file=gin/topic.gin", f"--gin_file={tmp_path}/model.gin"]
    assert train[:3] == ["t5x.train", *files]
    assert {f"--gin.MODEL_DIR='{folder}'", "--gin.RANDOM_SEED=3", "--gin.X=1"} < set(train)
    assert {"--gin.INITIAL_CHECKPOINT_PATH='/m/checkpoint_7'", "--gin.LANGUAGE='ro'"} < set(train)
    files = [f"--gin_file={folder}/config.gin", "--gin_file=t5x/configs/runs/eval.gin"]
    assert test[:3] == ["t5x.eval", *files]  # an evaluation refuses flags of training alone
    assert f"--gin.CHECKPOINT_PATH='{folder}'" in test
    assert "--gin.utils.RestoreCheckpointConfig.mode='best'" in test


def test_an_encoder_is_refused_with_the_page_that_helps(tmp_path):
    fields = "network.BertConfig.vocab_size = 2048\n"
    (tmp_path / "config.gin").write_text(f"from t5x.examples.encoder import network\n{fields}")
    with refuses("--model", str(tmp_path)) as refusal:
        finetune.model_gin(TrainedRun(str(tmp_path), {}))
    (tmp_path / "config.json").write_text('{"model_type": "modernbert"}')
    assert "docs/encoders.md" in refusal.value.to_set
    with refuses("--model", str(tmp_path)):
        finetune.starting_run(str(tmp_path), tmp_path / "out")


def test_a_generating_network_that_no_recipe_of_a_job_trains_is_refused(tmp_path):
    sizes = [sizes for sizes in NETWORKS.values() if not isinstance(sizes, T5Sizes)]
    assert sizes
    for other in sizes:
        (tmp_path / "config.gin").write_text(gin_of(other))
        with refuses("--model", str(tmp_path)) as refusal:
            finetune.model_gin(TrainedRun(str(tmp_path), {}))
        assert "tasks.new_job" in refusal.value.to_set


def metrics(accuracy: float) -> dict:
    return {"step": 9, "accuracy": accuracy, "confusion/a/a": 2, "chrf_signature": "nrefs:1"}


def test_means_and_deviations_are_of_the_seeds():
    found = finetune.summary([{"seed": i, **metrics(v)} for i, v in enumerate((0.5, 0.7, 0.9))])
    assert found.keys() == {"accuracy", "confusion/a/a"}
    assert found["accuracy"]["mean"] == pytest.approx(0.7)
    assert found["accuracy"]["deviation"] == pytest.approx(statistics.stdev([0.5, 0.7, 0.9]))
    lines = finetune.report("topic", found, 3).splitlines()
    assert lines[0] == "topic, test split, 3 seeds:"
    assert lines[1].split() == ["accuracy", "0.7", "±", "0.2"]
    assert len(lines) == 2
    (one,) = finetune.report("topic", finetune.summary([metrics(0.5)]), 1).splitlines()[1:]
    assert one.split() == ["accuracy", "0.5"]


@pytest.fixture
def said(run, monkeypatch) -> list[str]:
    """The modules that `main` runs; an evaluation only writes metrics, a training does nothing."""
    said = []

    def fake(words):
        said.append(words[0])
        if words[0] == "t5x.eval":
            (target,) = (w for w in words if w.startswith("--gin.EVAL_OUTPUT_DIR="))
            path = pathlib.Path(target.partition("=")[2].strip("'")) / "inference_eval"
            path.mkdir(parents=True)
            (path / "topic-metrics.jsonl").write_text(json.dumps(metrics(len(said) / 4)) + "\n")

    monkeypatch.setattr(finetune, "run_command", fake)
    monkeypatch.setattr(finetune.model_dir, "open_run", lambda model: run)
    return said


def test_seeds_run_once_and_the_results_hold_what_was_measured(run, said, tmp_path, capsys):
    out = tmp_path / "out"
    flags = ["topic", "--language", "romanian", "--model", run.folder, "--out", str(out)]
    finetune.main([*flags, "--seeds", "2"])
    assert said == ["t5x.train", "t5x.eval"] * 2
    found = json.loads((out / "results.json").read_text())
    assert [seed["accuracy"] for seed in found["seeds"]] == [0.5, 1.0]
    assert found["seeds"][0]["chrf_signature"] == "nrefs:1"
    assert found["summary"]["accuracy"]["mean"] == 0.75
    assert (found["config"], found["step"], found["split"]) == ("ron_Latn", 7, "test")
    assert found["versions"]["sacrebleu"]
    assert len(found["commands"]) == 4
    assert loss_curve.evaluations(out / "seed_1") == {"topic_test": (9, {"accuracy": 1.0})}
    card = loss_curve.evaluations(pathlib.Path(run.folder))["finetuned_topic_ron_Latn"]
    deviation = pytest.approx(statistics.stdev([0.5, 1.0]))
    assert card == (7, {"accuracy": 0.75, "accuracy_deviation": deviation, "seeds": 2})
    finetune.main([*flags, "--seeds", "2"])  # all is measured
    finetune.main([*flags, "--seeds", "3"])  # one more
    assert len(said) == 6
    assert "accuracy" in capsys.readouterr().out
    config = pathlib.Path(run.folder, "config.gin")
    config.write_text(config.read_text().replace("emb_dim = 128", "emb_dim = 256"))
    with refuses("--out", str(out)) as refusal:
        finetune.main(flags)
    assert "another model" in refusal.value.why


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"step": 9}, "checkpoint"),
        ({"language": "hu"}, "language"),
        ({"flags": ["--gin.X=1"]}, "flags"),
        ({"job": "entities"}, "job"),
    ],
)
def test_results_of_other_settings_are_not_kept(change, named, run, said, tmp_path):
    def start(job="topic", language="ro", step=7, flags=()):
        run.checkpoints[step] = f"{run.folder}/checkpoint_{step}"
        given = ["--language", language, "--model", run.folder, "--out", str(tmp_path / "out")]
        finetune.main([job, *given, *flags])

    start()
    start(language="romanian")  # the same by another name
    with refuses("--out", f"{tmp_path}/out") as refusal:
        start(**change)
    assert f"{named} " in refusal.value.why
    assert said == ["t5x.train", "t5x.eval"]


@pytest.mark.parametrize("name", finetune.OWN)
def test_what_each_seed_has_of_its_own_is_no_flag(name, run, said, tmp_path):
    """Seeds of one RANDOM_SEED would be one training, and their deviation 0."""
    flags = ["topic", "--language", "ro", "--model", run.folder, "--out", f"{tmp_path}/out"]
    with refuses(f"--gin.{name}") as refusal:
        finetune.main([*flags, "--seeds", "2", f"--gin.{name}=5"])
    assert finetune.OWN[name] in refusal.value.to_set
    assert not said


@pytest.mark.parametrize("written", [None, "\n"])
def test_a_seed_without_metrics_is_one_sentence(written, run, said, tmp_path, monkeypatch):
    path = tmp_path / "out/seed_0/test/inference_eval/topic-metrics.jsonl"
    path.parent.mkdir(parents=True)
    if written is not None:
        path.write_text(written)
    monkeypatch.setattr(finetune, "run_command", lambda words: None)
    with refuses(path):
        finetune.main([*FLAGS, "--model", run.folder, "--out", f"{tmp_path}/out"])
