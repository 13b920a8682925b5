"""A metric to choose by is measured, and not on the test split; else one sentence says so."""

import dataclasses

import pytest
import seqio

from fakes import toy
from fakes.refuses import refuses
from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.start import selection_metric
from t5x.trainer import EarlyStoppingAction
from tasks import romanian  # noqa: F401 (they register tasks)
from tasks.jobs import classification, summarization  # noqa: F401
from tasks.jobs.diacritics import task as diacritics  # noqa: F401

VALIDATION = toy.data("validation")
CFGS = {"train": toy.data(), "train_eval": None, "infer_eval": VALIDATION}


def check(metric=None, stop_by=None, mode="INFER_EVAL", **cfgs):
    """Of a run that keeps its best checkpoint by `metric`, or stops by one."""
    save = SaveCheckpointConfig(keep_best=1, metric=metric) if metric else None
    actions = {mode: [EarlyStoppingAction(stop_by, "max")]} if stop_by else None
    selection_metric.check({**CFGS, **cfgs}, save, actions)


@pytest.fixture
def task():
    """Registers tasks of the toy language that have other splits, until the test ends."""
    added = []

    def add(*metric_fns, splits=("train", "test")):
        added.append(f"toy_measured_{len(added)}")
        source = seqio.FunctionDataSource(toy.dataset, list(splits))
        features = seqio.TaskRegistry.get(toy.TASK).output_features
        seqio.TaskRegistry.add(
            added[-1],
            source=source,
            preprocessors=[],
            output_features=features,
            metric_fns=list(metric_fns),
        )
        return added[-1]

    yield add
    for name in added:
        seqio.TaskRegistry.remove(name)


def test_what_is_measured_passes():
    check()
    check("inference_eval/toy_copy/exact", ("toy_copy", "likelihood"))
    loss = "loss_per_nonpadding_target_token"
    check(f"training_eval/toy_copy/{loss}", ("toy_copy", loss), "TRAIN_EVAL", train_eval=VALIDATION)


STOP, BEST = "trainer.EarlyStoppingAction.metric", "SaveCheckpointConfig.metric"
MIXED = toy.data("validation", mixture_or_task_name=toy.MIXED)
UNMEASURED = [  # the setting, what it is, other datasets, and what is named instead
    (BEST, "inference_eval/toy_copy/exat", {}, "'exact'"),
    (STOP, ("toy_copy", "exat"), {}, "'exact'"),
    (BEST, "training_eval/toy_copy/acuracy", {"train_eval": VALIDATION}, "'accuracy'"),
    (BEST, "training_eval/toy_copy/effective_batch_size/encoder", {"train_eval": VALIDATION}, ""),
    (BEST, "inference_eval/joy/exact", {}, "toy_copy"),
    (STOP, ("joy", "exact"), {}, "toy_copy"),
    (BEST, "inference_eval/toy_bare/exact", {"infer_eval": MIXED}, "toy_copy"),
    (BEST, "training_eval/toy_copy/loss", {}, "train.train_eval_dataset_cfg"),
]


@pytest.mark.parametrize(("setting", "value", "cfgs", "instead"), UNMEASURED)
def test_what_is_never_measured_is_refused_with_what_is(setting, value, cfgs, instead):
    with refuses(setting, value) as refusal:
        check(**{"metric" if setting == BEST else "stop_by": value}, **cfgs)
    assert instead in str(refusal.value)


def test_packed_rows_have_examples():
    packed = dataclasses.replace(VALIDATION, pack=True)
    check("training_eval/toy_copy/effective_batch_size/encoder", train_eval=packed)


@pytest.mark.parametrize("name", ["quality", "ro_diacritics", "cnn_dailymail"])
def test_the_metrics_of_our_tasks_are_known_without_reading(name, monkeypatch):
    found = seqio.TaskRegistry.get(name)
    monkeypatch.setattr(type(found.source), "peek", None)
    wanted = {"quality": "f1/low", "ro_diacritics": "frequent_word_accuracy"}
    wanted = wanted.get(name, "rougeLsum")
    assert wanted in selection_metric.names("inference_eval", found, wanted, VALIDATION)


def raises(targets, predictions):
    """As many libraries do."""
    return {"first": float(targets[0] == predictions[0])}


def by_letter(targets, predictions):
    """Names that follow from the targets."""
    return {"all": 1.0} | {f"of/{target}": 1.0 for target in targets}


def of_aux(targets, predictions, aux_values):
    """Of what only a model can give."""
    return {"confidence": 1.0}


@pytest.mark.parametrize("fns", [[raises], [by_letter], [of_aux], [toy.same, raises]])
def test_a_name_that_cannot_be_known_is_left_to_the_first_evaluation(task, fns):
    name = task(*fns, splits=("train", "validation"))
    cfg = toy.data("validation", mixture_or_task_name=name)
    check(f"inference_eval/{name}/of/b", infer_eval=cfg)


def test_nothing_is_chosen_by_the_test_split(task):
    cfg = toy.data("test", mixture_or_task_name=task(toy.same))
    check(infer_eval=cfg)  # to look at it is another matter
    name = cfg.mixture_or_task_name
    choices = [{"metric": f"inference_eval/{name}/exact"}, {"stop_by": (name, "exact")}]
    choices += [{"metric": f"training_eval/{name}/loss", "train_eval": cfg}]
    for choice in choices:
        with refuses() as refusal:
            check(**{"infer_eval": cfg, **choice})
        assert refusal.value.setting in (BEST, STOP)
        assert "_eval/utils.DatasetConfig.split is 'test'" in refusal.value.why
        assert 'held_out={"validation": 0.01}' in refusal.value.to_set


@pytest.mark.parametrize(("splits", "named"), [(("train",), "held_out"), (("dev",), "'dev'")])
def test_a_run_without_a_validation_split_must_hold_one_out(task, splits, named):
    cfg = toy.data("validation", mixture_or_task_name=task(toy.same, splits=splits))
    with refuses("infer_eval/utils.DatasetConfig.split", "validation") as refusal:
        selection_metric.check_split("infer_eval", cfg)
    assert named in refusal.value.to_set
    selection_metric.check_split("infer_eval", VALIDATION)


@pytest.mark.parametrize("name", ["pseudo_perplexity", "word_accuracy", "next_sentence_accuracy"])
def test_encoders_are_chosen_by_their_own_metrics(name):
    cfg = dataclasses.replace(VALIDATION, mixture_or_task_name="ro_mini_bert", pack=True)
    check(f"training_eval/ro_mini_bert/{name}", train_eval=cfg)
    for_t5 = "training_eval/ro_mini_bert/effective_batch_size/decoder"
    with refuses(BEST, for_t5):
        check(for_t5, train_eval=cfg)
    single = dataclasses.replace(cfg, mixture_or_task_name="ro_mini_masked_lm")
    for_pairs = "training_eval/ro_mini_masked_lm/next_sentence_loss"
    with refuses(BEST, for_pairs):
        check(for_pairs, train_eval=single)
