"""A task from text to text is one line; its metrics, signatures too, go through an evaluation."""

import functools
import json

import jax
import numpy as np
import pytest
import seqio

from fakes import toy
from fakes.refuses import refuses
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.inference.evaluator import InferenceEvaluator
from t5x.monitoring.event_log import numeric_metrics
from t5x.partitioning import PjitPartitioner
from t5x.start.selection_metric import check
from tasks import mixtures
from tasks.jobs import summarization, text_metrics, text_to_text
from tasks.rows import Rows

PAIRS = [("un câine", "a dog"), ("o pisică vine", "a cat is coming"), ("doi", "two")]
NAMES = ("t2t_translate", "t2t_correct", "t2t_both")


@pytest.fixture
def registered(tmp_path):
    """Two tasks of the same three lines, and a mixture of them at rates 3 and 1."""
    for split in ("train", "validation"):
        for side, language in enumerate(("ro", "en")):
            lines = "".join(f"{pair[side]}\n" for pair in PAIRS)
            (tmp_path / f"{split}.{language}").write_text(lines)
    files = {s: (f"{tmp_path}/{s}.ro", f"{tmp_path}/{s}.en") for s in ("train", "validation")}
    add = functools.partial(
        text_to_text.add, vocabulary=toy.VOCABULARY, lengths={"inputs": 32, "targets": 16}
    )
    add(NAMES[0], Rows(parallel=files), prefix="translate: ")
    add(NAMES[1], Rows(parallel=files), prefix="correct: ", metrics=["cer"])
    mixtures.add(NAMES[2], {NAMES[0]: 3, NAMES[1]: 1})
    yield
    for name in NAMES[:2]:
        seqio.TaskRegistry.remove(name)
    seqio.MixtureRegistry.remove(NAMES[2])


def evaluation(monkeypatch, folder, name):
    """Evaluate a predictor that copies the targets, but for the last letter of the first."""
    loggers = [seqio.PyLoggingLogger, seqio.TensorBoardLogger, seqio.JSONLogger]
    evaluator = InferenceEvaluator(
        toy.data("validation", mixture_or_task_name=name, batch_size=2, task_feature_lengths=None),
        functools.partial(seqio.Evaluator, logger_cls=loggers),
        toy.shared_model(),
        PjitPartitioner(devices=jax.devices()[:1]),
        str(folder),
    )

    def copy(mode, params, examples, passing):
        found = [np.array(example["decoder_target_tokens"]) for example in examples]
        found[0][4] = toy.VOCABULARY.encode("t")[0]  # a dot
        return found

    monkeypatch.setattr(evaluator, "predictor", copy)
    return evaluator.evaluate(None, 7)


def test_all_metrics_are_measured_and_logged_with_their_signatures(
    registered, monkeypatch, tmp_path
):
    found = evaluation(monkeypatch, tmp_path, NAMES[2])
    assert found[NAMES[1]] == {"cer": pytest.approx(1 / len("a doga cat is comingtwo"))}
    values = found[NAMES[0]]
    assert values["exact_match"] == pytest.approx(2 / 3)
    assert values["wer"] == pytest.approx(1 / 7)
    assert 0 < values["sacrebleu"] < 100
    (line,) = (tmp_path / f"inference_eval/{NAMES[0]}-metrics.jsonl").read_text().splitlines()
    logged = json.loads(line)
    assert logged["chrf"] == values["chrf"]
    assert logged["chrf_signature"].startswith("nrefs:1|case:mixed|")
    numbers = numeric_metrics(found)[NAMES[0]]  # what events.jsonl and actions see
    assert {"sacrebleu", "chrf", "rougeLsum", "cer"} < set(numbers)
    assert not any("signature" in name for name in numbers)


def test_a_run_cannot_choose_its_best_checkpoint_by_a_signature(registered):
    data = {"train_eval": None, "infer_eval": toy.data("validation", mixture_or_task_name=NAMES[0])}
    choose = lambda name: SaveCheckpointConfig(
        keep_best=1, metric=f"inference_eval/{NAMES[0]}/{name}"
    )
    check(data, choose("chrf"), None)
    with pytest.raises(
        ValueError, match=r"no metric 'chrf_signature'.* to one of cer, chrf, exact_match"
    ):
        check(data, choose("chrf_signature"), None)


def test_a_metric_that_does_not_fit_names_the_task_and_registers_nothing():
    source = Rows(parallel={"train": ("a", "b")})
    with refuses("metric", "bleu", where="task t2t_bad"):
        text_to_text.add("t2t_bad", source, toy.VOCABULARY, metrics=["bleu"])
    assert "t2t_bad" not in seqio.TaskRegistry.names()


def test_summaries_are_measured_with_stems_in_english_alone():
    english = seqio.TaskRegistry.get("cnn_dailymail")
    assert (english.metric_fns, english.prefix) == ([text_metrics.rouge_english], "summarize: ")
    source = Rows(files={"train": "none.jsonl"}, columns={"inputs": "a", "targets": "b"})
    other = summarization.add("summaries_test", source, toy.VOCABULARY, english=False)
    seqio.TaskRegistry.remove("summaries_test")
    assert other.metric_fns == [text_metrics.rouge]
