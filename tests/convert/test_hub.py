"""Uploads and downloads against a stand-in for the hub, and the values of cards that it knows."""

import argparse
import dataclasses
import re
import shutil
import socket
import types

import huggingface_hub
import numpy as np
import pytest

from common.errors import Failure
from convert import __main__ as converter
from convert import atomic_output, hub
from convert.tokenizer import TrainedVocabulary
from fakes import loopback
from fakes.convert_fakes import FAMILIES, arrays, refusal, write_folder
from fakes.hub_server import HubStandIn
from fakes.paths import ROOT
from fakes.refuses import refuses
from t5x.checkpointing.reader import open_checkpoint
from t5x.monitoring import metric_writers
from t5x.monitoring.event_files import read_events
from tasks.scaffold import starting_model
from vocabulary import check

GOLDEN = ROOT / "tests" / "golden" / "t5_1_1"
MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"


@pytest.fixture
def server():
    with HubStandIn() as found:
        yield found


@pytest.fixture
def connected(server, tmp_path, monkeypatch):
    """The server, to which the clients of this process are sent."""
    for name, value in server.environment(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    constants = "huggingface_hub.constants"
    monkeypatch.setattr(f"{constants}.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(f"{constants}.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(f"{constants}.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    monkeypatch.setattr(f"{constants}.ENDPOINT", server.url)
    template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", template)
    return server


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "run" / "checkpoint_25"
    shutil.copytree(GOLDEN / "legacy" / "checkpoint_25", folder)
    return folder


def publish(checkpoint, *flags):
    config = ["--config", str(GOLDEN / "config.json"), "--no_verify"]
    return converter.main([str(checkpoint), "--push_to_hub", "user/name", *config, *flags])


def uploaded(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_one_command_publishes_all_but_paths_and_host_of_this_machine(
    connected, checkpoint, capsys
):
    run, server = checkpoint.parent, connected
    task = "MIXTURE_OR_TASK_NAME = 'cs_span_corruption'"
    (run / "config.gin").write_text(f"MODEL_DIR = '{run}'\nDATA = '{run}/a,{run}/b c'\n{task}\n")
    writer = metric_writers.TensorBoardWriter(str(run), "train")
    writer.write_scalars(5, {"loss": 2.5})
    writer.write_texts(5, {"gin": f"MODEL_DIR = {run}"})
    writer.close()
    assert publish(checkpoint, "--vocabulary", "none", "--license", "cc0-1.0") == 0
    said = capsys.readouterr().out
    assert f"{server.url}/user/name" in said
    assert "names no language:" in said
    assert "--language cs" in said
    assert server.files == uploaded(checkpoint.parents[1] / "run_hf" / "checkpoint_25")
    assert server.made[0]["name"] == "name"
    assert server.tokens == {"Bearer hf_secret"}
    assert b"name = 'user/name'" in server.files["README.md"]
    assert b"DATA = '\xe2\x80\xa6/a,\xe2\x80\xa6/b c'" in server.files["README.md"]
    assert "loss.png" in server.files
    (events,) = [name for name in server.files if name.startswith("runs/train/")]
    assert read_events(server.files[events]).scalars["loss"].values == [2.5]
    for name, data in server.files.items():
        for private in (str(checkpoint.parents[1]), str(ROOT), socket.gethostname()):
            if len(private) > 3:
                assert private.encode() not in name.encode() + data, name


@pytest.mark.parametrize(
    ("flag", "sent"), [("", None), ("--private", "private"), ("--public", "public")]
)
def test_only_a_flag_says_who_sees_a_new_repository(connected, checkpoint, flag, sent):
    """An organisation may have a default of its own."""
    publish(checkpoint, "--vocabulary", "none", *[flag] * bool(flag))
    assert [made.get("visibility") for made in connected.made] == [sent]


def test_old_weights_do_not_stay_beside_new_ones(connected, checkpoint):
    weights = ["pytorch_model.bin", "model-00001-of-00002.safetensors", "flax_model.msgpack"]
    weights += ["model.safetensors.index.json", "tf_model.h5"]
    others = ["notes.txt", "onnx/model.onnx", "sub/model.safetensors", ".gitattributes"]
    connected.files |= dict.fromkeys([*weights, *others], b"old")
    publish(checkpoint, "--vocabulary", "none", "--formats", "pytorch")
    written = uploaded(checkpoint.parents[1] / "run_hf" / "checkpoint_25")
    assert connected.files == written | dict.fromkeys(others, b"old")


def test_an_old_tokenizer_does_not_stay_beside_a_new_one(connected, tmp_path):
    """Its special tokens would be those of the new one."""
    old = ["special_tokens_map.json", "added_tokens.json", "spiece.model"]
    connected.files |= dict.fromkeys(old, b"old")
    folder = tmp_path / "checkpoint_1"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    for has_tokenizer in (False, True):
        atomic_output.write_record(folder, {"steps": [1], "tokenizer": has_tokenizer})
        hub.upload(folder, "user/name")
        assert [name in connected.files for name in old] == [not has_tokenizer] * 3
    assert connected.files["tokenizer.json"] == b"{}"


def test_no_right_to_write_is_one_sentence_and_the_conversion_stays(connected, checkpoint):
    connected.refuse = True
    folder = checkpoint.parents[1] / "run_hf" / "checkpoint_25"
    with refuses(folder, kind=Failure):
        publish(checkpoint, "--vocabulary", "none")
    assert folder.is_dir()


def test_a_token_or_a_network_that_fails_is_one_sentence_before_converting(
    connected, checkpoint, monkeypatch, capsys
):
    server = connected

    def refused(*flags):
        message = refusal(capsys, checkpoint, "--vocabulary", "none", *flags)
        assert not (checkpoint.parents[1] / "run_hf").exists()
        return message

    name = ("--push_to_hub", "user/name")
    for wrong in ("no name", "name"):
        assert "must be of the form user/name" in refused("--push_to_hub", wrong)
    server.role = "read"
    assert "HF_TOKEN may only read" in refused(*name)
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    assert "HF_TOKEN is not accepted" in refused(*name)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert "does not answer (" in refused(*name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "does not answer (" in refused(*name)
    monkeypatch.delenv("HF_TOKEN")
    assert "set HF_TOKEN" in refused(*name)


def test_a_published_model_is_checked_and_taken_back_by_its_name(
    connected, tmp_path, capsys, monkeypatch
):
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    values, folder = arrays(sizes), tmp_path / "hf"
    write_folder(folder, sizes, values)
    TrainedVocabulary(str(MINI), 0).publish(folder)
    connected.files |= {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.chdir(tmp_path)
    assert check.main(["user/name", "--vocab_size", "2048"]) == 0
    assert re.search(r"equal ids +ok", capsys.readouterr().out)
    assert converter.main(["from_hf", "user/name", "back", "--no_verify"]) == 0
    found = open_checkpoint(str(tmp_path / "back" / "checkpoint_0"))
    for name, array in values.items():
        np.testing.assert_array_equal(found[f"target/{name}"].read(), array)
    assert (tmp_path / "back" / "vocabulary.model").read_bytes() == MINI.read_bytes()


@pytest.fixture
def behind_a_proxy(connected, monkeypatch):
    """The hub behind a proxy that wants a password."""

    class Handler(loopback.Handler):
        def do_CONNECT(self):
            self.reply(407)

    with loopback.Server(Handler) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        address = "https://hub.test"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        huggingface_hub.close_session()  # it keeps the proxies of its start
        yield
    huggingface_hub.close_session()


@pytest.mark.parametrize(
    ("setting", "read"),
    [
        ("user/name", lambda: hub.fetch("user/name", ["*.json"])),
        ("--from", lambda: starting_model.file_of("user/name", "config.json")),
    ],
)
def test_a_proxy_that_refuses_is_one_sentence_with_a_way_without_it(behind_a_proxy, setting, read):
    with refuses(setting) as refusal:
        read()
    assert "407" in refusal.value.why
    assert refusal.value.to_set


@pytest.mark.parametrize(
    ("check", "value", "offered"),
    [
        (hub.license_id, "apache-2.0", None),
        (hub.license_id, "openrail++", None),
        (hub.license_id, "Apache License 2.0", "apache-2.0"),
        (hub.license_id, "gpl-4", "gpl"),
        (hub.license_id, "", "mit"),
        (hub.language_code, "ro", None),
        (hub.language_code, "tzo", None),
        (hub.language_code, "multilingual", None),
        (hub.language_code, "Moldovan", "ro"),
        (hub.language_code, "tzo_Latn", "tzo"),
        (hub.language_code, "ron", "ro or tzo"),
    ],
)
def test_what_the_hub_does_not_know_is_refused_with_the_nearest(check, value, offered):
    if offered is None:
        assert check(value) == value
    else:
        with pytest.raises(argparse.ArgumentTypeError, match=f"such as {offered}"):
            check(value)


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"license": ["cc0-1.0", "odc-by"]}, "cc0-1.0, odc-by"),
        ({}, hub.NO_LICENSE),
        (None, hub.NO_LICENSE),
    ],
)
def test_the_licence_is_that_of_the_page(monkeypatch, card, said):
    data = None if card is None else huggingface_hub.DatasetCardData(**card)
    info = lambda self, name, timeout: types.SimpleNamespace(card_data=data)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    assert hub.dataset_licenses(["user/name"]) == {"user/name": said}


def test_a_hub_that_cannot_be_reached_is_said():
    found = hub.dataset_licenses(["user/name"])["user/name"]
    assert found == "its licence could not be looked up (OfflineModeIsEnabled)"
