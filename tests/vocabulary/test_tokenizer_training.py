"""An encoder's vocabulary has the size asked for, the same bytes every time, and AutoTokenizer."""

import json

import pytest

from fakes.paths import ROOT
from vocabulary import corpus, tokenizer_training, train
from vocabulary.tokenizer_training import SPECIAL_TOKENS, train_tokenizer, write_folder

MINI = str(ROOT / "data" / "ro_mini" / "train-*.jsonl")
BUNDLED = ROOT / "data" / "ro_mini" / "wordpiece"


@pytest.fixture(scope="module")
def lines():
    return [line for text in corpus.read_documents(MINI) for line in corpus.lines_of(text)]


def test_the_bundled_vocabulary_is_made_again_byte_for_byte(tmp_path):
    # It was made in another process, where the hash tables of the library have another order.
    out = str(tmp_path / "new")
    train.main(["--kind", "wordpiece", "--corpus", MINI, "--size", "2048", "--out", out])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "new" / name).read_bytes() == (BUNDLED / name).read_bytes()


def test_the_same_text_gives_the_same_bpe(lines):
    first, again = (train_tokenizer(lines, "byte_bpe", 512).to_str() for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    ("kind", "family"),
    [("wordpiece", "bert"), ("byte_bpe", "roberta"), ("byte_bpe", "modernbert")],
)
def test_auto_tokenizer_loads_it_with_the_familys_special_tokens(lines, tmp_path, kind, family):
    from transformers import AutoTokenizer

    special = SPECIAL_TOKENS[family]
    tokenizer = train_tokenizer(
        lines, kind, 640, special_tokens=special, required_characters=train.REQUIRED_CHARACTERS
    )
    write_folder(tokenizer, str(tmp_path), special)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded) == 640
    for number, (role, name) in enumerate(special.tokens.items()):
        assert getattr(loaded, f"{role}_token") == name
        assert getattr(loaded, f"{role}_token_id") == number
    cls, sep, mask = loaded.cls_token, loaded.sep_token, loaded.mask_token
    pair = loaded(f"Ana are {mask} mere", "da")
    tokens = [token.strip("Ġ ") for token in loaded.convert_ids_to_tokens(pair["input_ids"])]
    assert tokens[0] == cls
    assert tokens.count(mask) == 1
    assert tokens[-1] == sep
    assert tokens.count(sep) == 1 + special.separators
    second = tokens.index(sep) + 1
    types = [0] * second + [1] * (len(tokens) - second)
    assert pair.get("token_type_ids") == (types if family == "bert" else None)
    # Where a mask takes the blank before it, the word after it keeps its own.
    blanks = loaded.convert_ids_to_tokens(loaded(f"are {mask} are")["input_ids"])
    assert kind == "wordpiece" or blanks[-2].startswith("Ġ")
    assert "Ġ" not in blanks


def test_text_is_read_back(lines):
    tokenizer = train_tokenizer(lines, "byte_bpe", 512)
    odd = "漢字 😀  Ăsta e\tun text\n"
    assert tokenizer.decode(tokenizer.encode(odd, add_special_tokens=False).ids) == odd


def test_required_characters_are_never_unknown(lines):
    tokenizer = train_tokenizer(
        lines, "wordpiece", 512, required_characters=train.REQUIRED_CHARACTERS
    )
    for text in (train.REQUIRED_CHARACTERS, "a" + train.REQUIRED_CHARACTERS):
        assert "[UNK]" not in tokenizer.encode(text).tokens
    assert "[UNK]" in tokenizer.encode("漢").tokens


def test_rare_characters_beyond_the_coverage_are_left_out():
    text = ["abab ba"] * 1000 + ["aŁ"]
    with pytest.raises(ValueError, match="too small for a vocabulary of any size"):
        train_tokenizer(text, "wordpiece", 256)
    assert tokenizer_training._alphabet(text, 0.999, "") == ["a", "b"]
    assert tokenizer_training._alphabet(text, 1.0, "Ș") == ["a", "b", "Ł", "Ș"]


def test_sizes_that_do_not_fit_name_the_ones_that_do(lines):
    with pytest.raises(ValueError, match="the largest possible is --size") as error:
        train_tokenizer(lines, "wordpiece", 128_000)
    largest = int(str(error.value).split("--size ")[2].split(",")[0])
    assert train_tokenizer(lines, "wordpiece", largest).get_vocab_size() == largest
    with pytest.raises(ValueError, match=r"special tokens alone need 261 pieces; set --size 384 o"):
        train_tokenizer(lines, "byte_bpe", 256)
    with pytest.raises(ValueError, match="the corpus holds no text"):
        train_tokenizer([], "wordpiece", 512)


def test_the_folder_says_what_transformers_asks(lines, tmp_path):
    write_folder(train_tokenizer(lines, "byte_bpe", 384), str(tmp_path), SPECIAL_TOKENS["roberta"])
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["mask_token"] == "<mask>"
    assert config["model_input_names"] == ["input_ids", "attention_mask"]
