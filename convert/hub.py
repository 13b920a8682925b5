"""The Hugging Face hub: its licences and languages, downloads and uploads."""

import argparse
import difflib
import importlib.util
import json
import re
from collections.abc import Iterable
from pathlib import Path

from common.arguments import check_hub_token
from common.errors import Failure, UserError, first_line, hub_errors, without_hub
from convert import atomic_output
from convert.formats.sentencepiece_model import MODEL_FILES
from convert.tokenizer import FILES

# From https://huggingface.co/docs/hub/repositories-licenses and the hub's own API, 2026.
LICENSES = """
afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m
bigscience-bloom-rail-1.0 bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear
bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0
cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0 cdla-permissive-2.0 cdla-sharing-1.0
creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2
fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0 grok2-community h-research
intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3
llama4 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openmdw-1.0 openrail openrail++
osl-3.0 other pddl postgresql unknown unlicense wtfpl zlib
"""
NO_LICENSE = "its page names no licence, so ask its authors"
_TIMEOUT_S = 10.0
# Files that transformers reads as the weights of a repository.
_WEIGHTS = ["model*.safetensors", "pytorch_model*.bin", "flax_model*.msgpack", "tf_model*.h5"]
_WEIGHTS += [f"{name}.index.json" for name in _WEIGHTS]
_TOKENIZER = [*FILES, *MODEL_FILES]  # and as its tokenizer
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def license_id(value: str) -> str:
    """Return a licence; as an argparse type, refuse an id that the hub does not list."""
    licenses = LICENSES.split()
    if value in licenses:
        return value
    near, *_ = difflib.get_close_matches("-".join(value.lower().split()), licenses, 1) or ["mit"]
    raise argparse.ArgumentTypeError(
        f"{value!r} is no licence of a model card: write an id of "
        f"https://huggingface.co/docs/hub/repositories-licenses, such as {near}, or 'other'"
    )


def language_code(value: str) -> str:
    """Return a language; as an argparse type, refuse a text that is not a code of ISO 639.

    The codes come from a file of the package `datasets`. They have two letters where such a code
    exists. The package is not imported, since that takes seconds.
    """
    package = importlib.util.find_spec("datasets")
    assert package
    assert package.origin
    table = Path(package.origin).parent / "utils" / "resources" / "languages.json"
    codes = json.loads(table.read_text(encoding="utf-8"))
    if value in codes or value == "multilingual":
        return value
    lowered = value.lower()
    codes_by_name = {
        name: code for code, names in codes.items() for name in names.lower().split("; ")
    }
    # Not short names: Ron is spoken in Nigeria, and ron is a code of Romanian.
    near = codes_by_name.get(lowered) if len(lowered) > 3 else None
    near = near or lowered.replace("_", "-").partition("-")[0]
    example = near if near in codes else "ro or tzo"
    raise argparse.ArgumentTypeError(
        f"{value!r} is no language of a model card: write its code of ISO 639, of two letters "
        f"where there is one and of three where not, such as {example}"
    )


def dataset_licenses(names: Iterable[str]) -> dict[str, str]:
    """Return the licence of each corpus on the hub, or the reason why it is unknown."""
    return {name: _dataset_license(name) for name in names}


def _dataset_license(name: str) -> str:
    from huggingface_hub import HfApi

    try:
        info = HfApi().dataset_info(name, timeout=_TIMEOUT_S)
    except Exception as error:  # offline, private, absent, or no response: the card says so
        return f"its licence could not be looked up ({type(error).__name__})"
    license = info.card_data and info.card_data.license
    return ", ".join([license] if isinstance(license, str) else license or []) or NO_LICENSE


def is_name(name: str) -> bool:
    """Return whether a text is OWNER/NAME of the hub rather than a file, a folder or an address."""
    return _NAME.fullmatch(name) is not None and not Path(name).exists()


def download(name: str, patterns: list[str]) -> Path:
    """Return a folder, or download files of the hub's model `name` and return their folder.

    Raises:
      UserError: it is neither a folder nor a name of the hub, or it cannot be downloaded.
    """
    if Path(name).is_dir():
        return Path(name)
    if not is_name(name):
        raise UserError(
            name,
            why="is not a folder, nor user/name of the hub",
            to_set="name a Hugging Face model's folder",
        )
    return fetch(name, patterns)


def fetch(name: str, patterns: list[str]) -> Path:
    """Download files of a model of the hub; return their folder, or raise UserError."""
    check_hub_token()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except hub_errors() as error:
        token = ", is HF_TOKEN valid?" if "401" in str(error) else ""
        raise UserError(
            name,
            why=f"is not here, and cannot be downloaded from the hub: {first_line(error)}{token}",
            to_set=without_hub(name, error),
        ) from error


def check_access(name: str) -> None:
    """Check that the hub responds and that the token may write, without writing.

    The hub is HF_ENDPOINT or the public one, the token HF_TOKEN or the saved login. Whether the
    token may write to this repository, only `upload` can tell.

    Raises:
      UserError: the name is wrong, or the token is missing, refused or may only read.
      Failure: the hub does not answer.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalTokenNotFoundError,
    )
    from huggingface_hub.utils import validate_repo_id

    check_hub_token()
    try:
        validate_repo_id(name)
        valid = name.count("/") == 1
    except HFValidationError:
        valid = False
    if not valid:
        raise UserError("--push_to_hub", name, "but must be of the form user/name")
    token = "https://huggingface.co/settings/tokens and set HF_TOKEN to it, or `hf auth login`"
    api = HfApi()
    try:
        user = api.whoami()
    except (HfHubHTTPError, LocalTokenNotFoundError) as error:
        raise UserError(
            "HF_TOKEN",
            why=f"is not accepted by the hub ({first_line(error)}), so nothing can be uploaded to "
            f"{name}",
            to_set=f"create one at {token}",
        ) from error
    except hub_errors() as error:
        raise Failure(
            api.endpoint,
            why=f"does not answer ({first_line(error)}), so nothing can be uploaded",
            to_set="connect this machine, or leave --push_to_hub out and upload it yourself",
        ) from error
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise UserError(
            "HF_TOKEN",
            why=f"may only read, so nothing can be uploaded to {name}",
            to_set=f"create one that may write at {token}",
        )


def upload(folder: Path, name: str, private: bool | None = None) -> str:
    """Upload a finished conversion, creating the repository if needed; return its address.

    Weights that the repository has already are replaced, in whatever format they are, and so is its
    tokenizer if the folder has one. `private` says whether a new repository is hidden; None leaves
    that to the default of its owner.

    Raises:
      Failure: the hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi

    record = atomic_output.read_record(folder)
    if record is None:
        raise UserError(str(folder), why="is not a finished conversion, so it is not uploaded")
    api, step = HfApi(), record["steps"][-1]
    try:
        api.create_repo(name, private=private, exist_ok=True)
        old = [*_WEIGHTS, *(_TOKENIZER if record["tokenizer"] else [])]
        message = f"Step {step}"
        api.upload_folder(
            folder_path=folder, repo_id=name, commit_message=message, delete_patterns=old
        )
    except hub_errors() as error:
        raise Failure(
            str(folder), why=f"is converted, but the hub rejected {name}: {first_line(error)}"
        ) from error
    return f"{api.endpoint}/{name}"
