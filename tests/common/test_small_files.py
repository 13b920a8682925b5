"""Every small file that is read may hold anything: one sentence names it, or its lines are left
out."""

import contextlib
import os
import shutil

import pytest

from common import small_files
from common.errors import UserError
from convert import atomic_output
from convert.formats.hf_checkpoint_reader import HfCheckpoint
from convert.run import loss_curve, model_dir
from evaluation import finetune, minimal_pairs, results
from fakes import toy
from fakes.paths import ROOT
from fakes.refuses import refuses
from report import misclassified
from t5x.checkpointing import layout, lease, reader, retention
from t5x.inference import text_file_task
from t5x.inference.resumable_jsonl import ResumableFile
from t5x.input_pipeline import position
from t5x.monitoring.event_log import EventLog
from t5x.settings.parser import Reader
from t5x.start import checkpoint as start
from t5x.start import model_dir as run_folder
from t5x.utils import RestoreCheckpointConfig
from tasks.cache import build
from tasks.jobs.diacritics import restore
from tasks.tokenizer_vocabulary import TokenizerVocabulary

ODD = {
    "lists too deep": b"[" * 100_000,
    "objects too deep": b'{"values": ' * 100_000,
    "null": b"null",
    "a list": b"[]",
    "a string": b'""',
    "a number": b"1" * 5_000,
    "binary": bytes(range(256)),
    "nothing": b"",
    "cut off": b'{"step": 1',
    "half a pair": b'{"step": 1, "time": 1, "event": "infill", "sentences": {"\\udc00": "a"}}',
    "other types": b'{"values": [], "step": {}, "custom_metadata": 5, "tree_metadata": null, '
    b'"bounds": 5, "event": [], "mask_token": 5, "config": 5, "inputs": 5, "good": 5}',
    "endless numbers": b'{"step": 1e999, "values": {"1": -1e999}, "time": 1, "event": "start"}',
    "a gin list too deep": b"a.b = " + b"[" * 100_000,
    "a gin macro without end": b"A = [%A]\nTASK_FEATURE_LENGTHS = %A\nMIXTURE_OR_TASK_NAME = %A\n",
    "gin cut off": b"a.b = '''",
}


def first_step(folder):
    (folder / "checkpoint_1/state").mkdir(parents=True)
    (folder / "checkpoint_1/state/_METADATA").touch()
    start.last_step(str(folder), 5, 5, RestoreCheckpointConfig(mode="latest", path=str(folder)))


def tokenizer_beside(folder):
    shutil.copy(ROOT / "data/ro_mini/wordpiece/tokenizer.json", folder)
    return TokenizerVocabulary(str(folder / "tokenizer.json"))


def notes_of_predictions(folder):
    (folder / "x.jsonl-chunk00000").write_text("{}\n")
    ResumableFile(str(folder), str(folder / "out/x.jsonl"), {"mode": "predict"}).check("")


def labels(folder):
    task = toy.classifier("mood", {"good": "g"})
    run_folder.check_labels(start.Start(str(folder / "checkpoint_1"), None), [task])


def of_another_run(folder):
    """Read a lease that takes the place of one that is held."""
    (folder / "lease.json").rename(folder / "new")
    with contextlib.suppress(lease.LeaseError), lease.Lease(str(folder)) as held:
        (folder / "new").replace(folder / "lease.json")
        held.check()


def settings(folder):
    Reader().read_file(str(folder / "recipe.gin"))


def checkpoint(folder):
    return reader.open_checkpoint(str(folder))


def published(folder):
    for name, content in (("config.json", "{}"), ("model.safetensors.index.json", "{}")):
        if not (folder / name).exists():
            (folder / name).write_text(content)
    HfCheckpoint.open(folder)


def lines_of(read):
    return lambda folder: [*read((folder / "x.jsonl").read_text("utf-8", "replace").split("\n"))]


def network(folder, config=None):
    return model_dir.network(model_dir.TrainedRun(str(folder), {}), config)


# What reads a file, by the file's name in a folder.
READERS = {
    "first_step.json": first_step,
    "labels.json": labels,
    "best.json": lambda folder: retention.best_checkpoint(str(folder)),
    "_CHECKPOINT_METADATA": lambda folder: layout.custom_metadata(str(folder)),
    "checksums.json": lambda folder: layout.check_checksums(str(folder)),
    "state/_METADATA": checkpoint,
    "state/checkpoint": checkpoint,
    "checkpoint": checkpoint,
    "stream.json": lambda folder: position.saved(str(folder)),
    "events.jsonl": lambda folder: EventLog(str(folder)).metrics_by_step("start"),
    "lease.json": of_another_run,
    "config.gin": network,
    "./config.gin": lambda folder: restore.settings(str(folder)),
    "recipe.gin": settings,
    "sizes.json": lambda folder: network(folder, str(folder / "sizes.json")),
    "conversion.json": atomic_output.read_record,
    "inference_eval/a-metrics.jsonl": loss_curve.evaluations,
    "./inference_eval/a-metrics.jsonl": lambda folder: results.add_to_run(folder, "a", 1, {}),
    "settings.json": lambda folder: finetune.keep_settings(folder, "", {"seed": 1}),
    "job.json": lambda folder: build.read_json(str(folder / "job.json")),
    "tokenizer.json": lambda folder: TokenizerVocabulary(str(folder / "tokenizer.json")),
    "tokenizer_config.json": tokenizer_beside,
    "pairs.jsonl": lambda folder: minimal_pairs.read_file(str(folder / "pairs.jsonl")),
    "x.jsonl-notes.json": notes_of_predictions,
    "x.jsonl": lines_of(misclassified.read),
    **dict.fromkeys(
        ("config.json", "model.safetensors", "model.safetensors.index.json"), published
    ),
    "input.jsonl": lambda folder: text_file_task.LineSource(str(folder / "input.jsonl"), "x"),
}


@pytest.mark.usefixtures("gin_apart")
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", READERS)
def test_any_content_is_read_or_refused(name, odd, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(ODD[odd])
    with contextlib.suppress(UserError):
        READERS[name](tmp_path)


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_json_is_an_object_or_a_value_error(text):
    try:
        value = small_files.parse_json(text)
    except ValueError:
        return
    assert isinstance(value, dict)


def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("absent")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    with open(tmp_path / "large", "wb") as file:
        file.truncate(2**40)
    for name in ("pipe", "loop", "dangling", "device", "folder", "large", "absent"):
        with refuses(tmp_path / name) as refusal:
            with small_files.parsing(tmp_path / name, "delete it"):
                small_files.read_json(tmp_path / name)
        assert refusal.value.to_set == "delete it"
