"""The page's function, without the page: that gradio serves it is a slow test's."""

import dataclasses
import json

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from convert.served import space_app
from convert.tokenizer import write_tokenizer
from fakes.convert_fakes import FAMILIES, arrays, write_folder
from fakes.paths import ROOT


def test_the_model_is_beside_the_page_or_on_the_hub_or_in_the_environment(tmp_path, monkeypatch):
    given = {"model": "../checkpoint_3", "examples": [], "title": "tiny"}
    (tmp_path / "space").mkdir()
    (tmp_path / "space" / "space.json").write_text(json.dumps(given))
    found = space_app.settings(tmp_path / "space")
    assert found == given | {"model": str(tmp_path / "checkpoint_3")}
    (tmp_path / "space" / "space.json").write_text(json.dumps(given | {"model": "user/name"}))
    assert space_app.settings(tmp_path / "space")["model"] == "user/name"
    monkeypatch.setenv("MODEL", "/else/where")
    assert space_app.settings(tmp_path / "space")["model"] == "/else/where"


def test_the_page_prints_what_generate_does(tmp_path):
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    write_folder(tmp_path, sizes, arrays(sizes))
    write_tokenizer(str(ROOT / "data" / "ro_mini" / "ro_mini.model"), str(tmp_path))
    text = "Ana are <extra_id_0> mere."
    found = space_app.load(str(tmp_path))(text, 5)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    inputs = tokenizer(text, return_tensors="pt")
    (output,) = model.generate(**inputs, max_new_tokens=5, do_sample=False)
    assert found == tokenizer.decode(output).replace("<pad>", "").strip() != ""
