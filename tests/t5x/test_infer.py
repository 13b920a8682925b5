"""The inference script: a line an example, in order, each once, whatever ends the process."""

import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
import seqio

import gin
from common.source import CorpusTask
from fakes import toy
from fakes.refuses import refuses
from t5x import decoding
from t5x import infer as infer_script
from t5x.checkpointing.config import RestoreCheckpointConfig
from t5x.inference import predictor
from t5x.partitioning import PjitPartitioner
from tasks.jobs import classification
from tasks.rows import Rows

TEXTS = toy.texts("validation")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run's folder with two checkpoints."""
    return toy.save(tmp_path_factory.mktemp("run"), 3, 9)


@pytest.fixture(autouse=True)
def copying(monkeypatch, request):
    """Decoding gives the inputs back, so that order can be seen; real where it is asked for."""
    calls = []
    if "real" in request.fixturenames:
        return calls

    def copy(self, mode, params, examples):
        examples = list(examples)
        calls.append(len(examples))
        if mode == "score":
            return [np.float32(-len(e["decoder_target_tokens"].nonzero()[0])) for e in examples]
        ids = [e["encoder_input_tokens"] for e in examples]
        aux = lambda i: (i, {"scores": np.float32(i[0])})
        return ids if mode == "predict" else list(map(aux, ids))

    monkeypatch.setattr(predictor.Predictor, "__call__", copy)
    return calls


def infer(folder, output, mode="predict", **changes):
    arguments = {
        "mode": mode,
        "model": toy.shared_model(),
        "dataset_cfg": toy.data("validation", batch_size=2),
        "restore_checkpoint_cfg": RestoreCheckpointConfig(f"{folder}/checkpoint_3", "specific"),
        "partitioner": PjitPartitioner(devices=jax.devices()[:2]),
        "output_dir": str(output),
        "checkpoint_period": 3,
        "summarize_config_fn": lambda *_: None,
    }
    return infer_script.infer(**{**arguments, **changes})


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def texts_in(path):
    lines = read(path)
    assert all(line["inputs"]["inputs_pretokenized"] == line["prediction"] for line in lines)
    return [line["prediction"] for line in lines]


def test_a_line_an_example_in_order(folder, tmp_path, copying):
    (path,) = infer(folder, tmp_path)
    assert path == f"{tmp_path}/toy_copy-predict.jsonl"
    assert texts_in(path) == TEXTS
    assert copying == [6, 6, 6, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["toy_copy-predict.jsonl"]


def test_each_mode_has_its_fields(folder, tmp_path):
    (scores,) = infer(folder, tmp_path, "score")
    assert [line["score"] for line in read(scores)] == [-len(t) - 1.0 for t in TEXTS]
    assert read(scores)[0]["inputs"] == {
        "inputs_pretokenized": TEXTS[0],
        "targets_pretokenized": TEXTS[0],
    }
    (pairs,) = infer(folder, tmp_path, "predict_with_aux")
    line = read(pairs)[0]
    assert line["prediction"] == TEXTS[0]
    assert line["aux"] == {"scores": ord(TEXTS[0][0]) + 3.0}


def test_shards_share_the_examples(folder, tmp_path):
    found = [texts_in(infer(folder, tmp_path, shard_id=i, num_shards=3)[0]) for i in range(3)]
    assert sorted(itertools.chain(*found)) == sorted(TEXTS)
    assert found[1] == TEXTS[1::3]
    with refuses("Task toy_copy") as refusal:
        infer(folder, tmp_path, shard_id=49, num_shards=50)  # which has no example
    assert "00049-of-00050" in refusal.value.why


@pytest.mark.parametrize("shards", [1, 3])
def test_a_limit_draws_the_same_examples_of_all_of_the_split(folder, tmp_path, shards):
    found = [
        infer(folder, tmp_path, shard_id=i, num_shards=shards, max_examples=5)[0]
        for i in range(shards)
    ]
    drawn = [text for path in found for text in texts_in(path)]
    assert len(drawn) == 5
    assert set(drawn) < set(TEXTS)
    assert TEXTS.index(max(drawn, key=TEXTS.index)) >= len(TEXTS) / 2
    assert len(list(tmp_path.glob("*.jsonl"))) == shards
    more = infer(folder, tmp_path, shard_id=0, num_shards=shards, max_examples=9)
    assert len(texts_in(more[0])) == len(TEXTS[:9:shards])  # another limit is not resumed


def test_a_mixture_has_a_file_a_task(folder, tmp_path):
    paths = infer(
        folder, tmp_path, dataset_cfg=toy.data("validation", mixture_or_task_name=toy.MIXED)
    )
    names = {path.rpartition("/")[2] for path in paths}
    assert names == {f"{t}-predict.jsonl" for t in (toy.TASK, toy.BARE)}
    assert all(texts_in(path) == TEXTS for path in paths)


class Killed(BaseException):
    """The process was taken away."""


@pytest.mark.parametrize(
    ("within", "written"),
    [
        pytest.param("the work", 0, marks=pytest.mark.slow),
        ("the work", 2),
        ("the writing", 0),
        ("the writing", 2),
    ],
)
def test_after_a_kill_no_line_is_lost_or_repeated(folder, tmp_path, copying, written, within):
    done = []

    def write(path, *args):
        if within == "the writing" and len(done) == written:
            with open(path, "w") as file:
                file.write('{"half": ')
            raise Killed
        done.append(path)
        infer_script.write_inferences_to_file(path, *args)
        if within == "the work" and len(done) > written:
            raise Killed

    with pytest.raises(Killed):
        infer(folder, tmp_path, write_fn=write)
    assert not (tmp_path / "toy_copy-predict.jsonl").exists()
    copying.clear()
    (path,) = infer(folder, tmp_path)
    assert texts_in(path) == TEXTS
    assert sum(copying) == len(TEXTS) - 6 * written  # complete chunks are not computed again


def killed(folder, output, **changes):
    """Infer, killed at the second chunk."""

    def write(path, *args):
        if path.endswith("00001.tmp"):
            raise Killed
        infer_script.write_inferences_to_file(path, *args)

    with pytest.raises(Killed):
        infer(folder, output, write_fn=write, **changes)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(text * (1 + i % 2) for i, text in enumerate(TEXTS)))
    return path


def test_the_lines_of_a_file_go_out_in_order_over_a_kill_and_another_batch(folder, tmp_path, lines):
    killed(folder, tmp_path / "out", input_file=str(lines))
    changes = {"dataset_cfg": toy.data("validation", batch_size=4), "checkpoint_period": 2}
    (found,) = infer(folder, tmp_path / "out", input_file=str(lines), **changes)
    assert found == f"{tmp_path}/out/lines-predict.jsonl"
    assert texts_in(found) == lines.read_text().splitlines()


def searching():
    model = toy.model()
    model.decode_fn = decoding.beam_search
    return model


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        ("checkpoint_9", {}),
        ("input_prefix", {"input_prefix": "q: "}),
        ("input_file", {}),  # whose content changes
        ("decode_fn", {"model": searching()}),
    ],
)
def test_it_does_not_resume_what_was_made_otherwise(folder, tmp_path, lines, setting, change):
    given = {"input_file": str(lines)}
    killed(folder, tmp_path / "out", **given)
    if setting == "checkpoint_9":
        other = RestoreCheckpointConfig(f"{folder}/checkpoint_9", "specific")
        change = {"restore_checkpoint_cfg": other}
    elif setting == "input_file":
        lines.write_text("\n".join(TEXTS))
    with refuses(f"{tmp_path}/out/tmp-lines-predict-00000-of-00001") as refusal:
        infer(folder, tmp_path / "out", **given | change)
    assert setting in refusal.value.why


@pytest.mark.parametrize("changed", ["parameters", "examples"])
def test_it_does_not_resume_what_has_other_content(changed, folder, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(f"{folder}/checkpoint_3", run / "checkpoint_3")
    killed(run, tmp_path / "out")
    if changed == "parameters":
        shutil.rmtree(run / "checkpoint_3/state")
        shutil.copytree(f"{folder}/checkpoint_9/state", run / "checkpoint_3/state")
        shutil.copy(f"{folder}/checkpoint_9/_CHECKPOINT_METADATA", run / "checkpoint_3")
    else:
        monkeypatch.setattr(toy, "texts", lambda _: TEXTS[::-1])
    with refuses(f"{tmp_path}/out/tmp-toy_copy-predict-00000-of-00001") as refusal:
        infer(run, tmp_path / "out")
    assert changed in refusal.value.why


@pytest.mark.parametrize(
    "setting",
    [
        "decoding.temperature_sample.topk",
        "models.EncoderDecoderModel.predict_batch_with_aux.num_decodes",
    ],
)
def test_it_does_not_resume_with_other_macros_of_decoding(folder, tmp_path, setting):
    text = (
        "from __gin__ import dynamic_registration\nfrom t5x import decoding\n"
        f"from t5x import models\n{setting} = %NUMBER\nNUMBER = {{}}\n"
    )
    with gin.unlock_config():
        try:
            gin.parse_config(text.format(40))
            killed(folder, tmp_path)
            gin.parse_config(text.format(3))
            with refuses(f"{tmp_path}/tmp-toy_copy-predict-00000-of-00001") as refusal:
                infer(folder, tmp_path)
            assert "NUMBER" in refusal.value.why
        finally:
            gin.clear_config()


@pytest.mark.parametrize("setting", ["dtype = 'bfloat16'", "attention = 'plain'"])
def test_the_notes_tell_networks_of_the_same_parameters_apart(setting):
    text = "from __gin__ import dynamic_registration\nfrom t5x.examples.t5 import network\n"
    with gin.unlock_config():
        try:
            gin.parse_config(text)
            before = infer_script.decoding_notes(toy.model())
            gin.parse_config(f"{text}network.T5Config.{setting}\n")
            assert infer_script.decoding_notes(toy.model()) != before
        finally:
            gin.clear_config()


@pytest.mark.parametrize("finished", [False, True])
def test_it_does_not_resume_with_other_fields_of_a_line(folder, tmp_path, finished):
    text = (
        "from __gin__ import dynamic_registration\nfrom t5x import infer as infer_script\n"
        "infer_script.write_inferences_to_file.output_ids = {}\n"
    )
    with gin.unlock_config():
        try:
            gin.parse_config(text.format(False))
            write = gin.get_configurable(infer_script.write_inferences_to_file)

            @functools.wraps(write)
            def once(path, *args):
                if path.endswith("00001.tmp") and not finished:
                    raise Killed
                write(path, *args)

            with contextlib.suppress(Killed):
                infer(folder, tmp_path, merge_chunked_results=False, write_fn=once)
            gin.parse_config(text.format(True))
            with refuses(f"{tmp_path}/tmp-toy_copy-predict-00000-of-00001") as refusal:
                infer(folder, tmp_path, write_fn=write)
            assert "output_ids" in refusal.value.why
        finally:
            gin.clear_config()


def test_the_notes_on_decoding_are_the_same_in_every_process():
    class Sampler:
        """Its text holds its address."""

    def noted(decode_fn):
        model = toy.model()
        model.decode_fn = decode_fn
        return infer_script.decoding_notes(model)

    few = noted(functools.partial(decoding.temperature_sample, topk=3))
    assert few["decode_fn"] == "t5x.decoding.temperature_sample"
    assert few["decode_fn.topk"] == "3"
    assert noted(Sampler()) == noted(Sampler())
    assert noted(Sampler())["decode_fn"].endswith(".Sampler")


def test_a_mixture_killed_in_its_second_task_leaves_the_first_as_it_is(folder, tmp_path, copying):
    mixed = toy.data("validation", mixture_or_task_name=toy.MIXED)
    ends = []

    def once(path, *args):
        second = toy.TASK in path
        if second and ends:
            raise Killed
        ends.extend([path] * second)
        infer_script.write_inferences_to_file(path, *args)

    with pytest.raises(Killed):
        infer(folder, tmp_path, dataset_cfg=mixed, checkpoint_period=1, write_fn=once)
    copying.clear()
    paths = infer(folder, tmp_path, dataset_cfg=mixed)
    assert [texts_in(path) for path in paths] == [TEXTS, TEXTS]
    assert sum(copying) == len(TEXTS) - 8
    assert sorted(map(str, tmp_path.iterdir())) == sorted(paths)


def test_skipped_records_are_reported(folder, tmp_path, capsys, monkeypatch):
    source = toy.data().provider.source
    found = {"read": 28, "skipped_empty": 8, "examples": 40, "cut_inputs": 4}
    monkeypatch.setattr(source, "counts", found)
    infer(folder, tmp_path)
    assert "8 of 28 records skipped" in capsys.readouterr().err


def test_lines_without_the_prefix_of_the_models_task_are_reported(folder, tmp_path, capsys):
    toy.add_task("toy_sums", task_cls=CorpusTask)
    seqio.TaskRegistry.get("toy_sums").prefix = "sum: "
    cfg = toy.data("validation", batch_size=2, mixture_or_task_name="toy_sums")
    (tmp_path / "a.txt").write_text("ab\n")
    (tmp_path / "b.txt").write_text("sum: ab\n")
    for name, prefix, is_said in (("a", "", True), ("a", "q: ", False), ("b", "", False)):
        path = f"{tmp_path}/{name}.txt"
        infer(folder, tmp_path / "out", dataset_cfg=cfg, input_file=path, input_prefix=prefix)
        assert ("infer.input_prefix" in capsys.readouterr().err) == is_said


@pytest.mark.parametrize("mode", ["predict", "predict_with_aux"])
def test_an_empty_line_has_an_empty_prediction(folder, tmp_path, mode):
    """Whatever the model makes of the prefix alone, here its copy."""
    (tmp_path / "a.txt").write_text("a\n\n \t\u3000\nb\n")
    changes = {"input_file": f"{tmp_path}/a.txt", "input_prefix": "x: "}
    (path,) = infer(folder, tmp_path, mode, **changes)
    assert [line["prediction"] for line in read(path)] == ["x: a", "", "", "x: b"]
    lines = [line["inputs"]["inputs_pretokenized"] for line in read(path)]
    assert lines == ["a", "", " \t\u3000", "b"], "the n-th output belongs to the n-th line"


def test_lines_that_are_cut_are_counted(folder, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("abcd\n" + "abcd" * 5 + "\nabc\n")
    (found,) = infer(folder, tmp_path, input_file=f"{tmp_path}/a.txt")
    assert f"1 line of {tmp_path}/a.txt" in capsys.readouterr().err
    assert [line["prediction"] for line in read(found)] == ["abcd", ("abcd" * 5)[:15], "abc"]


def test_a_file_without_targets_is_not_scored(folder, tmp_path):
    (tmp_path / "a.txt").write_text("abc\n")
    with refuses("infer.mode", "score"):
        infer(folder, tmp_path, "score", input_file=f"{tmp_path}/a.txt")
    (tmp_path / "b.jsonl").write_text('{"inputs": "a", "targets": "bc"}\n')
    (found,) = infer(folder, tmp_path, "score", input_file=f"{tmp_path}/b.jsonl")
    assert read(found) == [
        {"inputs": {"inputs_pretokenized": "a", "targets_pretokenized": "bc"}, "score": -3.0}
    ]


def test_chunks_may_stay_as_they_are(folder, tmp_path, copying):
    infer(folder, tmp_path, merge_chunked_results=False)
    chunks = sorted(tmp_path.glob("tmp-*/*-chunk?????"))
    assert len(chunks) == 4
    assert list(itertools.chain(*map(texts_in, chunks))) == TEXTS
    copying.clear()
    infer(folder, tmp_path, merge_chunked_results=False)
    assert copying == []


def test_results_become_plain_json():
    assert infer_script.to_json(b"\xc8\x99i") == "și"
    assert infer_script.to_json(np.float32(0.5)) == 0.5
    assert infer_script.to_json(np.array([1, 2])) == [1, 2]
    assert infer_script.to_json(np.array([b"a", b"b"], object)) == ["a", "b"]
    both = np.array([[100, 101, 1], [102, 1, 0]])
    found = infer_script.result_fields(both, "predict", toy.VOCABULARY)
    assert found == {"prediction": ["ab", "c"]}  # all decodes, where they are asked for


def test_a_classifiers_predictions_are_its_labels(folder, tmp_path):
    (tmp_path / "mails.csv").write_text("text,label\ny,0\nn,1\nx,1\n")
    names = {"0": "yes, but late", "1": "no"}
    source = Rows(
        files={"train": str(tmp_path / "mails.csv")},
        columns={"inputs": "text", "targets": "label"},
        labels={"targets": names},
        held_out={},
    )
    classification.add("toy_mails", source, toy.VOCABULARY)
    cfg = toy.data("train", batch_size=2)
    cfg = dataclasses.replace(cfg, mixture_or_task_name="toy_mails")
    (tmp_path / "lines.txt").write_text("y\nn\nx\n")
    try:
        for given in ({}, {"input_file": str(tmp_path / "lines.txt")}):
            (path,) = infer(folder, tmp_path, dataset_cfg=cfg, **given)
            # Decoding gives the inputs back, and x is no class.
            found = sorted(line["prediction"] for line in read(path))
            assert found == ["no", "x", "yes, but late"]
    finally:
        seqio.TaskRegistry.remove("toy_mails")


def test_real_decoding_writes_the_predictors_results(folder, tmp_path, real):
    (path,) = infer(
        folder,
        tmp_path,
        "predict_with_aux",
        dataset_cfg=toy.data("validation", batch_size=16),
    )
    lines = read(path)
    assert [line["inputs"]["inputs_pretokenized"] for line in lines] == TEXTS
    assert all(line["aux"]["scores"] <= 0 for line in lines)


@pytest.fixture
def real():
    """Asks for the real predictor."""


def test_one_checkpoint_is_taken(folder, tmp_path):
    every = RestoreCheckpointConfig(folder, mode="all")
    with refuses("RestoreCheckpointConfig.mode", "all"):
        infer(folder, tmp_path, restore_checkpoint_cfg=every)
    latest = RestoreCheckpointConfig(folder, mode="latest")
    assert infer(folder, tmp_path, restore_checkpoint_cfg=latest, dry_run=True) == []


def test_the_folder_of_a_run_is_no_output(folder, tmp_path):
    (tmp_path / "model-info.txt").write_text("parameters: 5\n")
    with refuses("EVAL_OUTPUT_DIR or INFER_OUTPUT_DIR", str(tmp_path)):
        infer(folder, tmp_path)


def test_extension_and_vocabulary_of_the_files_are_settings(folder, tmp_path):
    (path,) = infer(folder, tmp_path, file_extension="json", output_vocab_feature_name="inputs")
    assert path == f"{tmp_path}/toy_copy-predict.json"
    assert texts_in(path) == TEXTS
    with pytest.raises(ValueError, match="output_vocab_feature_name"):
        infer(folder, tmp_path / "new", output_vocab_feature_name="texts")


@pytest.mark.parametrize(("keep", "kind"), [(False, float), (True, np.float32)])
def test_aux_values_are_numbers_or_arrays(folder, tmp_path, keep, kind):
    kinds = []

    def write(path, results, *rest):
        kinds.extend(type(aux["scores"]) for _, aux in results)
        infer_script.write_inferences_to_file(path, results, *rest)

    infer(folder, tmp_path, "predict_with_aux", write_fn=write, keep_aux_as_numpy=keep)
    assert set(kinds) == {kind}


def test_vocabularies_are_verified_as_set(folder, tmp_path):
    seen = []
    verify = lambda cfg, model: seen.append(cfg.mixture_or_task_name)
    infer(folder, tmp_path, dry_run=True, verify_matching_vocabs_fn=verify)
    assert seen == ["toy_copy"]
    other = dataclasses.replace(toy.shared_model(), output_vocabulary=seqio.ByteVocabulary(7))
    with pytest.raises(ValueError, match=r"output_vocabulary"):
        infer(folder, tmp_path, dry_run=True, model=other)
    infer(folder, tmp_path, dry_run=True, model=other, verify_matching_vocabs_fn=None)


def lines_of(folder, tmp_path, **options):
    write = functools.partial(infer_script.write_inferences_to_file, **options)
    return read(infer(folder, tmp_path, write_fn=write)[0])


def test_the_fields_of_a_line_are_settings(folder, tmp_path):
    (line, *_) = lines_of(folder, tmp_path / "a", output_ids=True)
    assert line["prediction_tokens"] == [ord(letter) + 3 for letter in TEXTS[0]] + [1]
    (line, *_) = lines_of(folder, tmp_path / "b", include_all_inputs=True)
    assert set(line["inputs"]) >= {"inputs", "targets", "inputs_pretokenized"}
    (line, *_) = lines_of(folder, tmp_path / "c", input_fields_to_include=["targets"])
    assert set(line["inputs"]) == {"targets", "targets_pretokenized"}
    with refuses("write_inferences_to_file.input_fields_to_include", []):
        lines_of(folder, tmp_path / "d", include_all_inputs=True, input_fields_to_include=[])

    class Upper(json.JSONEncoder):
        def encode(self, value):
            return super().encode(value).upper()

    (line, *_) = lines_of(folder, tmp_path / "e", json_encoder_cls=Upper)
    assert line["PREDICTION"] == TEXTS[0].upper()
