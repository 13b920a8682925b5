import dataclasses
import functools
import json
import os
import shutil

import jax
import pytest
import seqio
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from convert import __main__ as converter
from convert.proof import t5x_logits
from convert.run import model_dir
from convert.t5x_params import nested
from fakes import toy
from fakes.convert_fakes import NETWORKS, arrays, write_run
from fakes.paths import MINI, ROOT
from fakes.refuses import refuses
from t5x import decoding, models
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.inference.evaluator import InferenceEvaluator
from t5x.partitioning import PjitPartitioner
from t5x.start.model_dir import write_inference
from tasks import vocabularies
from tasks.jobs import text_to_text
from tasks.rows import Rows

CHECKPOINT = ROOT / "tests" / "golden" / "t5_1_0" / "legacy" / "checkpoint_25"


def test_a_run_gives_its_complete_checkpoints(tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "checkpoint_25")
    shutil.copytree(CHECKPOINT, tmp_path / "checkpoint_100")
    (tmp_path / "checkpoint_200.orbax-checkpoint-tmp-1").mkdir()
    (tmp_path / "checkpoint_300").mkdir()  # a save that was cut short
    run = model_dir.open_run(str(tmp_path))
    assert list(run.checkpoints) == [25, 100]
    assert model_dir.open_run(str(tmp_path / "checkpoint_100")).checkpoints == {
        100: str(tmp_path / "checkpoint_100")
    }


def test_gin_and_vocabulary_are_beside_the_checkpoints(tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "checkpoint_25")
    run = model_dir.open_run(str(tmp_path / "checkpoint_25"))
    assert run.gin() is None
    assert run.vocabulary() is None
    (tmp_path / "operative_config.gin").write_text("B = 2")
    assert run.gin() == "B = 2"
    (tmp_path / "config.gin").write_text("A = 1")
    (tmp_path / "vocabulary.model").write_bytes(b"")
    assert run.gin() == "A = 1"
    assert run.vocabulary() == str(tmp_path / "vocabulary.model")


def test_the_newest_run_is_the_one_that_saved_last(tmp_path):
    with refuses(tmp_path):
        model_dir.newest_run(tmp_path)
    for age, name in enumerate(("new", "old")):
        folder = tmp_path / name / "checkpoint_25"
        shutil.copytree(CHECKPOINT, folder)
        os.utime(folder, (10**9 - age, 10**9 - age))
    shutil.copytree(CHECKPOINT, tmp_path / "new_hf" / "checkpoint_25")
    assert model_dir.newest_run(tmp_path) == str(tmp_path / "new")


SAMPLING = "M.decode_fn = @decoding.temperature_sample\ntemperature_sample."


@pytest.mark.parametrize(
    ("gin", "settings"),
    [
        ("", {"do_sample": False, "num_beams": 1}),
        (
            "predict_batch_with_aux.num_decodes = 4",
            {"do_sample": False, "num_beams": 4, "length_penalty": 0.6, "early_stopping": "never"},
        ),
        (f"{SAMPLING}topk = 1", {"do_sample": False, "num_beams": 1}),
        (
            f"{SAMPLING}topk = 40",
            {"do_sample": True, "top_k": 40, "top_p": 1.0, "temperature": 1.0},
        ),
        (
            f"{SAMPLING}topk = 0\ntemperature_sample.topp = 0.9",
            {"do_sample": True, "top_k": 0, "top_p": 0.9, "temperature": 1.0},
        ),
    ],
)
def test_a_run_generates_as_its_evaluation_decodes(tmp_path, gin, settings):
    run = model_dir.TrainedRun(str(tmp_path), {})
    (tmp_path / "config.gin").write_text(gin)
    inference = {"lengths": {"inputs": 512, "targets": 64}, "prefixes": {}}
    (tmp_path / "inference.json").write_text(json.dumps(inference))
    assert run.generation() == {"max_new_tokens": 64, **settings}
    (tmp_path / "generation_config.json").write_text('{"max_new_tokens": 7}')
    assert run.generation() == {"max_new_tokens": 7, **settings}, "the user's file wins"


PREFIX = "tradu: "
TEXTS = ("Ana are mere.", "Copiii se joacă în curte, iar bunica îi privește.", "Plouă tare. " * 20)
MODEL = "models.EncoderDecoderModel"
# By name: gin, the function of the trainer, how many ids are decoded. transformers divides the
# scores of beams by another function of their lengths, so that they are equal only undivided.
DECODING = {
    "greedy": (f"{MODEL}.decode_fn = @decoding.temperature_sample", decoding.temperature_sample, 1),
    "beams": (
        f"{MODEL}.predict_batch_with_aux.num_decodes = 4\ndecoding.beam_search.alpha = 0.0",
        functools.partial(decoding.beam_search, alpha=0.0),
        4,
    ),
}


@pytest.fixture(scope="module", params=["t5_1_1", "t5gemma2"])
def evaluated(request, tmp_path_factory):
    """A run whose evaluation decodes; how it decodes; the ids that it decodes, by `DECODING`."""
    run = tmp_path_factory.mktemp("evaluated") / "run"
    sizes = dataclasses.replace(NETWORKS[request.param], vocab_size=2048)
    values = arrays(sizes)
    if request.param == "t5_1_1":
        values["decoder/logits_dense/kernel"][:, 1] *= 2  # so that some outputs end
    write_run(run, sizes, values)
    shutil.copy(MINI / "ro_mini.model", run / "vocabulary.model")
    lines = [json.dumps({"text": text, "to": f"{text[:30]} Da."}) for text in TEXTS]
    (run / "rows.jsonl").write_text("\n".join(lines))
    rows = {"files": {"validation": str(run / "rows.jsonl")}}
    rows["columns"] = {"inputs": "text", "targets": "to"}
    vocabulary = vocabularies.sentencepiece(str(MINI / "ro_mini.model"))
    task = text_to_text.add(
        f"to_publish_{request.param}", Rows(**rows), vocabulary, PREFIX, ["chrf"]
    )
    cfg = toy.data("validation", mixture_or_task_name=task.name, task_feature_lengths=None)
    cfg = dataclasses.replace(cfg, task_feature_lengths={"inputs": 32, "targets": 24})
    partitioner = PjitPartitioner(devices=jax.devices()[:1])
    params, ids = jax.device_put(stack_layers(nested(values)), partitioner.replicated), {}
    for name, (_, decode, beams) in DECODING.items():
        model = models.EncoderDecoderModel(
            t5x_logits.module_of(sizes),
            *(vocabulary, vocabulary, None, decode),
            default_decoder_params=models.DecoderParams(num_decodes=beams),
        )
        evaluation = InferenceEvaluator(cfg, seqio.Evaluator, model, partitioner, str(run))
        dataset = evaluation.evaluator.cached_model_datasets[task.name].as_numpy_iterator()
        ids[name] = evaluation.predictor("predict", params, [row for _, row in dataset])
    write_inference(str(run), evaluation.evaluator, cfg)
    return run, ids


@pytest.mark.parametrize("name", DECODING)
def test_generate_without_arguments_gives_the_evaluations_outputs(evaluated, name, tmp_path):
    """With the length, the beams, the prefix and the longest input that the folder says."""
    run, ids = evaluated
    shutil.copytree(run, tmp_path / "run")
    gin, *_ = DECODING[name]
    with (tmp_path / "run" / "config.gin").open("a") as file:
        file.write(f"from t5x import decoding\nfrom t5x import models\n{gin}\n")
    assert converter.main([str(tmp_path / "run"), "--examples", TEXTS[0]]) == 0
    folder = tmp_path / "run_hf" / "checkpoint_3"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    texts = [model.config.prefix + text for text in TEXTS]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True)
    texts_of = lambda rows: [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
    outputs = texts_of(model.generate(**inputs))
    assert outputs == texts_of(ids[name])
    card, first = (folder / "README.md").read_text(), outputs[0].strip()
    for text in ("at most 32 tokens", "at most 24 tokens", PREFIX + TEXTS[0], first):
        assert text in card
