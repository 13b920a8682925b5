"""The tokenizer of an encoder's run: the files that `AutoTokenizer` loads, and its special ids."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from etils import epath

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model"),
)
IN_RUN = "tokenizer"  # where a run keeps it
_ROLES = ("pad", "cls", "sep", "bos", "eos")


class TokenizerFolder(NamedTuple):
    """A folder on this disk or in a bucket with a tokenizer.json."""

    path: str

    def write(self, folder: Path) -> None:
        """Copy the files that are there."""
        for name, content in self._contents():
            (folder / name).write_bytes(content)

    def fingerprint(self) -> str:
        """Return the SHA-256 of its files."""
        found = hashlib.sha256()
        for name, content in self._contents():
            found.update(f"{name} {len(content)} ".encode() + content)
        return found.hexdigest()

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        for name in FILES:
            if (source := epath.Path(self.path) / name).is_file():
                yield name, source.read_bytes()

    def _json(self, name: str) -> dict:
        path = epath.Path(self.path) / name
        return json.loads(path.read_text()) if path.is_file() else {}

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._ids().values()) + 1

    def _ids(self) -> dict[str, int]:
        import tokenizers

        text = (epath.Path(self.path) / "tokenizer.json").read_text()
        return tokenizers.Tokenizer.from_str(text).get_vocab()

    def token(self, role: str) -> str | None:
        """Return the token that plays a role ("pad", "mask", …), if the configuration names it."""
        named = self._json("special_tokens_map.json") | self._json("tokenizer_config.json")
        token = named.get(f"{role}_token")
        return token["content"] if isinstance(token, dict) else token

    @property
    def tokenizer_class(self) -> str | None:
        """The class of transformers that its configuration names."""
        return self._json("tokenizer_config.json").get("tokenizer_class")

    def special_ids(self) -> dict[str, int]:
        """Return {"pad_token_id": 0, …} for a config.json."""
        ids = self._ids()
        found = {f"{role}_token_id": ids.get(self.token(role) or "") for role in _ROLES}
        return {name: i for name, i in found.items() if i is not None}


def tokenizer_of(run_folder: str, given: str | None) -> TokenizerFolder:
    """Return the tokenizer beside a run, or the given one; raise ValueError if there is none."""
    path = given or f"{run_folder}/{IN_RUN}"
    if not (epath.Path(path) / "tokenizer.json").is_file():
        raise ValueError(
            f"{path} holds no tokenizer.json: give the folder of the trained one with "
            "--vocabulary, or none for weights alone."
        )
    return TokenizerFolder(path)
