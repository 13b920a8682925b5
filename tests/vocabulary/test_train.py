"""Training gives exactly the pieces asked for, the same files every time, for T5 and encoders."""

import errno
import functools
import itertools
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import sentencepiece
import tensorflow as tf

from common import new_files, tables
from common.errors import Failure
from common.tables import OK
from convert.formats.sentencepiece_model import read_model, sentinel_ids
from fakes import tokenizer_files
from fakes.paths import ROOT
from fakes.refuses import refuses
from tasks import vocabularies
from tasks.text.tokenize import batch_encoder
from vocabulary import checkpoint, corpus, extend, train, trim
from vocabulary.check import check_vocabulary, same_ids
from vocabulary.tokenizer_training import SPECIAL_TOKENS, train_tokenizer, write_folder

MINI = str(ROOT / "data" / "ro_mini" / "train-*.jsonl")
VALIDATION = str(ROOT / "data" / "ro_mini" / "validation.jsonl")
BUNDLED = ROOT / "data" / "ro_mini" / "wordpiece"
KINDS = ("sentencepiece", "wordpiece", "byte_bpe")


@pytest.fixture(scope="module")
def lines():
    return [line for text in corpus.read_documents(MINI) for line in corpus.lines_of(text)]


@pytest.fixture(scope="module")
def model(lines):
    return train.train_vocabulary(lines, 512)


def processor(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def made(kind, lines, size, **options):
    """Train a vocabulary of a kind; return its bytes, and its number of pieces."""
    if kind == "sentencepiece":
        found = train.train_vocabulary(lines, size, **options)
        return found.SerializeToString(deterministic=True), len(found.pieces)
    found = train_tokenizer(lines, kind, size, **options)
    return found.to_str().encode(), found.get_vocab_size()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_text_gives_the_same_bytes_and_the_size_asked_for(kind, lines):
    first, again = made(kind, lines, 512), made(kind, lines, 512)
    assert first == again
    assert first[1] == 512


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_do_not_fit_name_the_ones_that_do(kind, lines):
    with refuses("--size", 128_000) as refusal:
        made(kind, lines, 128_000)
    largest = int(re.search(r"--size (\d+)", refusal.value.to_set)[1])
    assert made(kind, lines, largest)[1] == largest
    if kind == "byte_bpe":
        with refuses("--size", 256):
            made(kind, lines, 256)
        return
    chinese = "".join(map(chr, range(0x4E00, 0x4E3C)))
    options = {"required_characters": train.REQUIRED_CHARACTERS + chinese}
    with refuses("--size", 256) as refusal:
        made(kind, lines, 256, **options)
    least = int(re.search(r"--size (\d+)", refusal.value.to_set)[1])
    assert made(kind, lines, least, **options)[1] == least


def test_required_characters_are_never_unknown(lines, model):
    assert 2 not in processor(model).encode(train.REQUIRED_CHARACTERS)
    options = {"required_characters": train.REQUIRED_CHARACTERS}
    tokenizer = train_tokenizer(lines, "wordpiece", 512, **options)
    for text in (train.REQUIRED_CHARACTERS, "a" + train.REQUIRED_CHARACTERS):
        assert "[UNK]" not in tokenizer.encode(text).tokens
    assert "[UNK]" in tokenizer.encode("漢").tokens


def test_bytes_leave_nothing_unknown(lines):
    odd = "漢字 😀"
    loaded = processor(train.train_vocabulary(lines, 768, byte_fallback=True))
    assert 2 not in loaded.encode(odd)
    assert loaded.decode(loaded.encode(odd)) == odd
    tokenizer = train_tokenizer(lines, "byte_bpe", 512)
    odd += "  Ăsta e\tun text\n"
    assert tokenizer.decode(tokenizer.encode(odd, add_special_tokens=False).ids) == odd


# --- of T5


def test_special_ids_and_sentinels_are_t5s(model):
    loaded = processor(model)
    ids = (loaded.pad_id(), loaded.eos_id(), loaded.unk_id(), loaded.bos_id())
    assert ids == (0, 1, 2, -1)
    assert sentinel_ids(model) == {n: 511 - n for n in range(100)}
    words = loaded.encode("Ana are mere")
    assert loaded.encode("<extra_id_0>") == [511]
    assert loaded.encode("Ana are mere <extra_id_99>") == [*words, 412]
    assert loaded.encode("<extra_id_7> Ana are mere <extra_id_8>") == [504, *words, 503]


def test_letters_of_a_language_become_pieces_in_both_cases(tmp_path):
    text = ["Příliš žluťoučký kůň úpěl ďábelské ódy"] * 20 + ["Ω"] * 19 + ["straße"] * 20
    assert set("ěščřžýáíéúůťďňóĚŠČŘŽÝÁÍÉÚŮŤĎŇÓß") >= set(train.letters_of(text, 2048))
    assert set("ěščřžĚŠČŘŽß") <= set(train.letters_of(text, 2048))
    marks = ["नमस्ते दुनिया"] * 20 + ["كِتَابٌ"] * 20
    assert set("्ािुेٌَِ") <= set(train.letters_of(marks, 2048))
    assert len(train.letters_of([chr(0x4E00 + i) * 30 for i in range(500)], 1024)) == 64


def test_a_text_longer_than_sentencepiece_takes_is_sampled(tmp_path, monkeypatch, capsys, lines):
    """SentencePiece would abort the process."""
    fitted = []

    def trained(some, *args, **settings):
        fitted.extend(some)
        return train_all(some, *args, **settings)

    train_all = train.train_vocabulary
    monkeypatch.setattr(train, "train_vocabulary", trained)
    monkeypatch.setattr(train, "MOST_CHARACTERS", 100_000)
    out = str(tmp_path / "a.model")
    assert train.main(["--corpus", MINI, "--size", "512", "--out", out]) == 0
    assert 99_000 < sum(map(len, fitted)) + len(fitted) <= 100_000
    assert len(fitted) < len({*lines})
    assert f"{len({*lines}) - len(fitted):,} beyond 100,000 characters" in capsys.readouterr().err


def test_a_zero_width_joiner_of_the_corpus_is_a_piece_of_its_own(tmp_path, capsys):
    texts = [text.replace("te", "t\u200ce") for text in corpus.read_documents(MINI)]
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in texts))
    out = tmp_path / "joined.model"
    train.main(["--corpus", str(tmp_path / "train.jsonl"), "--size", "512", "--out", str(out)])
    assert "U+200C can be written" in capsys.readouterr().out
    vocabulary = vocabularies.sentencepiece(str(out))
    ids = vocabulary.encode("ceart\u200ce\nmere")
    assert vocabulary.decode(ids) == "ceart\u200ce mere"
    (streamed,) = batch_encoder(vocabulary)(tf.constant(["ceart\u200ce\nmere"])).to_list()
    assert streamed == ids
    texts += ["line\nbreak", "a\u200cb ﬁ\u200cm² \u200c x\u200b\u200cy"]
    same = same_ids(str(out), texts)
    assert same.verdict == OK, same.figure
    assert not any(ord(c) >= 0xF0000 for p in read_model(str(out)).pieces for c in p.piece)


def test_a_rare_letter_of_the_corpus_is_no_unknown_piece(tmp_path):
    rows = [json.dumps({"text": f"ana are mere {i}"}) for i in range(8_000)]
    rows[::380] = [json.dumps({"text": "ů"})] * len(rows[::380])
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    out = tmp_path / "cs.model"
    train.main(["--corpus", str(tmp_path / "train.jsonl"), "--size", "256", "--out", str(out)])
    pieces = {piece.piece for piece in read_model(str(out)).pieces}
    assert {"ů", "Ů"} <= pieces


def test_letters_of_a_sorted_corpus_are_looked_for_in_all_of_it(tmp_path, capsys):
    """Files may hold one language after the other; this corpus has 120,000 lines."""
    first = "\n".join(f"ana are mere {i}" for i in range(1_000))
    last = "\n".join(["kůň a\u200cb ☃"] * 1_000)
    rows = [json.dumps({"text": text}) for text in [first] * 110 + [last] * 10]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    out = tmp_path / "both.model"
    flags = ["--corpus", str(tmp_path / "train.jsonl"), "--size", "256", "--out", str(out)]
    train.main([*flags, "--character_coverage", "0.98"])
    pieces = {piece.piece for piece in read_model(str(out)).pieces}
    assert {"ů", "Ů", "ň", "Ň", "\u200c"} <= pieces
    assert "☃" in capsys.readouterr().out


def test_what_a_corpus_repeats_counts_once(tmp_path):
    """Pages of boilerplate, which SentencePiece would compare with each other for hours."""
    menu = [f"Meniul paginii, rândul {i}: acasă, știri, contact" for i in range(200)]
    text = "\n".join([*menu, *corpus.read_documents(MINI)])
    for name, times in (("once", 1), ("often", 40)):
        page = json.dumps({"text": text})
        (tmp_path / f"{name}.jsonl").write_text((page + "\n") * times)
        files = [
            "--corpus",
            str(tmp_path / f"{name}.jsonl"),
            "--out",
            str(tmp_path / f"{name}.model"),
        ]
        train.main(["--size", "512", *files])
    assert (tmp_path / "once.model").read_bytes() == (tmp_path / "often.model").read_bytes()


# --- of encoders


def test_the_bundled_vocabulary_is_made_again_byte_for_byte(tmp_path):
    # It was made in another process, where the hash tables of the library have another order.
    out = str(tmp_path / "new")
    train.main(["--kind", "wordpiece", "--corpus", MINI, "--size", "2048", "--out", out])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "new" / name).read_bytes() == (BUNDLED / name).read_bytes()


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


def test_rare_characters_beyond_the_coverage_are_left_out(lines):
    for coverage, is_unknown in ((0.999, True), (1.0, False)):
        made = train_tokenizer([*lines, "aŁ"], "wordpiece", 512, character_coverage=coverage)
        assert ("[UNK]" in made.encode("Ł").tokens) is is_unknown


# --- the command


def test_the_command_writes_and_checks(tmp_path, capsys):
    out = tmp_path / "new" / "ro.model"
    train.main(["--corpus", MINI, "--size", "512", "--out", str(out)])
    printed = capsys.readouterr()
    assert "512 pieces" in printed.out
    assert "read 291 documents" in printed.err
    findings = check_vocabulary(str(out), 512)
    assert tables.passed(findings), tables.table(findings)
    listing = out.with_suffix(".vocab").read_text(encoding="utf-8").splitlines()
    assert len(listing) == 512
    assert listing[0] == "<pad>\t0"
    assert listing[-1] == "▁<extra_id_0>\t0"


TRAINING = ["--corpus", VALIDATION, "--size", "512", "--out"]
CHANGING = {
    "extend": lambda model, out: extend.main([model, "--pieces", "words.txt", *out]),
    "trim": lambda model, out: trim.main([model, "--corpus", VALIDATION, *out]),
    "extend encoder's": lambda model, out: extend.main(["bpe", "--corpus", VALIDATION, *out]),
    "trim encoder's": lambda model, out: trim.main(["bpe", "--corpus", VALIDATION, *out]),
}
COMMANDS = CHANGING | {
    "train": lambda model, out: train.main([*TRAINING, *out[1:]]),
    "train encoder's": lambda model, out: train.main(["--kind", "byte_bpe", *TRAINING, *out[1:]]),
}


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A folder with the sources of all commands, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("constituțională\n", encoding="utf-8")
    shutil.copy(ROOT / "data/ro_mini/ro_mini.model", "old.model")
    tokenizer_files.byte_bpe(tmp_path / "bpe")
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_replaces_files_unless_told_to(name, sources, monkeypatch):
    """Neither those that are there at its start, nor those that appear while it works."""
    out = "new" if name.endswith("encoder's") else "new.model"
    command = functools.partial(COMMANDS[name], "old.model")
    command(["--out", out])
    new = contents(sources)
    with refuses() as refusal:
        command(["--out", out])
    assert refusal.value.setting.startswith(out)
    monkeypatch.setattr(new_files, "check_new", lambda *_: None)
    for module in (train, checkpoint):
        monkeypatch.setattr(module, "check_new", lambda *_: None)
    with refuses():
        command(["--out", out])
    assert contents(sources) == new
    command(["--out", out, "--overwrite"])
    assert contents(sources).keys() == new.keys()


@pytest.mark.parametrize("name", CHANGING)
def test_no_command_replaces_its_source_unless_told_to(name, sources):
    source = "bpe" if name.endswith("encoder's") else "old.model"
    before = contents(sources)
    with refuses() as refusal:
        COMMANDS[name]("old.model", ["--out", source])
    assert refusal.value.setting == source
    assert contents(sources) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_leaves_nothing_and_the_same_command_may_be_repeated(
    name, sources, monkeypatch
):
    out = ["--out", "new" if name.endswith("encoder's") else "new.model"]
    before, write = contents(sources), Path.write_bytes
    for full in (1, 2):  # the file that no longer fits
        numbers = itertools.count(1)

        def write_until_full(path, content, full=full, numbers=numbers):
            if next(numbers) == full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(path, content)

        monkeypatch.setattr(Path, "write_bytes", write_until_full)
        with refuses(kind=Failure) as refusal:
            COMMANDS[name]("old.model", out)
        assert refusal.value.setting.startswith(str(sources))
        assert contents(sources) == before
        assert not (sources / "new").exists()
    monkeypatch.setattr(Path, "write_bytes", write)
    COMMANDS[name]("old.model", out)


@pytest.mark.parametrize(
    ("changes", "setting", "reason"),
    [
        ({"--corpus": "/nowhere"}, "/nowhere/*", "/nowhere"),
        ({"--column": "txt"}, None, "'txt'"),
        ({"--kind": "wordpiece"}, "--out", "--kind wordpiece"),
        ({"--special_tokens": "bert"}, "--special_tokens", "--kind sentencepiece"),
    ],
)
def test_mistakes_are_one_sentence(changes, setting, reason, tmp_path):
    options = {"--corpus": MINI, "--size": "512", "--out": str(tmp_path / "a.model")} | changes
    with refuses(setting) as refusal:
        train.main([word for pair in options.items() for word in pair])
    assert reason in refusal.value.why
    assert not list(tmp_path.iterdir())


def test_the_command_makes_an_encoders_vocabulary_and_overwrites_nothing(tmp_path, capsys):
    out = tmp_path / "bert"
    options = ["--kind", "byte_bpe", "--special_tokens", "modernbert", "--out", str(out)]
    train.main(["--corpus", MINI, "--size", "512", *options])
    assert "512 of vocab_size 512" in capsys.readouterr().out
    assert json.loads((out / "tokenizer_config.json").read_text())["mask_token"] == "[MASK]"
    for flags, said in (([], "exists"), (["--byte_fallback"], "is not for --kind byte_bpe")):
        with pytest.raises(SystemExit):
            train.main(["--corpus", MINI, "--size", "512", *options, *flags])
        assert said in capsys.readouterr().err
