"""The tokenizer of a run is written, and gives the special ids that config.json needs."""

import dataclasses
import json

import pytest
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer

from convert.sizes import BertSizes
from convert.tokenizer import TokenizerFolder
from fakes.convert_fakes import ENCODERS
from fakes.refuses import refuses
from fakes.tokenizer_files import WORDPIECE, words


def test_special_ids_of_an_encoder_are_those_that_its_tokenizer_names(tmp_path):
    found = TokenizerFolder(words(tmp_path))
    ids = {"pad": 1, "cls": 0, "sep": 2, "bos": 0, "eos": 2}
    sizes = BertSizes(60, position_offset=2)
    assert found.config_ids(sizes) == {f"{role}_token_id": i for role, i in ids.items()}
    assert found.roles["mask"] == "<mask>"
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"bos_token": {"content": "ana", "special": False}}
    path.write_text(json.dumps(config))
    assert found.config_ids(sizes)["bos_token_id"] == 5
    with refuses(found.path):
        found.config_ids(BertSizes(59))


@pytest.mark.parametrize("content", ["", "{}", '{"version": "1.0", "model": {', "[]"])
def test_a_damaged_tokenizer_is_refused(tmp_path, content):
    folder = TokenizerFolder(words(tmp_path))
    (tmp_path / "tokenizer.json").write_text(content)
    with refuses(tmp_path / "tokenizer.json"):
        folder.config_ids(BertSizes(60))


def test_only_files_of_a_tokenizer_are_copied(tmp_path):
    words(tmp_path / "from")
    (tmp_path / "from/notes.txt").write_text("private")
    TokenizerFolder(str(tmp_path / "from")).write(tmp_path / "to")
    names = {path.name for path in (tmp_path / "to").iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json"}


@pytest.mark.parametrize(("family", "types"), [("bert", True), ("modernbert", False)])
def test_a_tokenizer_gives_the_inputs_that_its_network_takes(tmp_path, family, types):
    TokenizerFolder(str(WORDPIECE)).publish(tmp_path, ENCODERS[family])
    found = AutoTokenizer.from_pretrained(tmp_path)("ana are", "mere")
    assert ("token_type_ids" in found) == types
    assert not types or max(found.token_type_ids) == 1


def test_the_second_sentence_has_its_type_in_a_network_that_was_trained_on_pairs(tmp_path):
    """Whatever the tokenizer's own file says of two sentences, or if it says nothing."""
    for pair in (None, "[CLS] $A [SEP] $B:0 [SEP]:0"):
        folder = tmp_path / str(bool(pair))
        TokenizerFolder(str(WORDPIECE)).write(folder)
        own = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = [("[CLS]", own.token_to_id("[CLS]")), ("[SEP]", own.token_to_id("[SEP]"))]
        single = {"single": "[CLS] $A [SEP]", "pair": pair} if pair else {"single": "$A"}
        own.post_processor = processors.TemplateProcessing(**single, special_tokens=ids)
        own.save(str(folder / "tokenizer.json"))
        sizes = dataclasses.replace(ENCODERS["bert"], next_sentence=True)
        TokenizerFolder(str(folder)).publish(folder / "hf", sizes)
        found = AutoTokenizer.from_pretrained(folder / "hf")("ana are", "mere")
        first = found.input_ids.index(ids[1][1]) + 1
        assert found.token_type_ids == [i >= first for i in range(len(found.input_ids))]
