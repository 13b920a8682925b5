"""Small tokenizers of every kind that encoders have, trained in a moment."""

import json

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from fakes.small_vocabulary import TEXTS
from tasks import vocabularies
from vocabulary import tokenizer_training

WORDPIECE = vocabularies.resolve("data/ro_mini/wordpiece")


def byte_bpe(folder, family="roberta", size=512, texts=TEXTS):
    """Writes a byte-level BPE with the special tokens of a model family; returns the folder."""
    special = tokenizer_training.SPECIAL_TOKENS[family]
    tokenizer = tokenizer_training.train_tokenizer(texts, "byte_bpe", size, special_tokens=special)
    tokenizer_training.write_folder(tokenizer, str(folder), special)
    return str(folder)


def blanks_bpe(folder, tokens=("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")):
    """Writes a BPE that spells a blank as ▁, as mmBERT's does, without a configuration."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.decoder = decoders.Replace("▁", " ")
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=list(tokens), show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    folder.mkdir(exist_ok=True, parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def unigram(folder):
    """Writes a Unigram that spells a blank as ▁, its mask last, as XLM-R's; returns the folder."""
    special = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>"}
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=[*special.values()], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["<mask>"])
    return _written(tokenizer, folder, special | {"mask": "<mask>"})


def cased(folder):
    """Writes a WordPiece of cased text, unused pieces between, as multilingual BERT's."""
    special = {role: f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    first, *others = special.values()
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=[first, "[unused1]", *others], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return _written(tokenizer, folder, special)


def _written(tokenizer, folder, special):
    folder.mkdir(exist_ok=True, parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {f"{role}_token": token for role, token in special.items()}
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


def edit(folder, out, change):
    """Writes a copy of a tokenizer.json that `change` has edited; returns its folder."""
    with open(f"{folder}/tokenizer.json") as file:
        content = json.load(file)
    change(content)
    out.mkdir(exist_ok=True, parents=True)
    (out / "tokenizer.json").write_text(json.dumps(content))
    return str(out)


def words(folder, special=("<s>", "<pad>", "</s>", "<mask>"), count=60):
    """Writes a tokenizer of entire words, special tokens first; returns the folder."""
    names = [*special, "<unk>", "ana", "are", "mere"]
    names += [f"word{i}" for i in range(count - len(names))]
    ids = {name: i for i, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(ids, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([*special, "<unk>"])
    roles = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "mask": "<mask>", "unk": "<unk>"}
    return _written(tokenizer, folder, roles)
