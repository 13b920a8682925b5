"""The tokenizer of a run is written, and gives the special ids that config.json needs."""

import json

import pytest
from transformers import AutoTokenizer

from convert.sizes import BertSizes
from convert.tokenizer import TokenizerFolder
from fakes.convert_fakes import ENCODERS
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
    with pytest.raises(ValueError, match="60 ids and the embedding 59 rows"):
        found.config_ids(BertSizes(59))


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
