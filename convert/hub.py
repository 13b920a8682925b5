"""The Hugging Face hub: what it knows of licences and languages, downloads and uploads."""

import argparse
import difflib
import importlib.util
import json
import re
from collections.abc import Iterable
from pathlib import Path

from common.arguments import check_hub_token
from common.errors import Failure, UserError, first_line, without_hub
from convert import atomic_output

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
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def license_id(value: str) -> str:
    """Return a licence, as an argparse type that refuses what the hub does not know."""
    known = LICENSES.split()
    if value in known:
        return value
    near, *_ = difflib.get_close_matches("-".join(value.lower().split()), known, 1) or ["mit"]
    raise argparse.ArgumentTypeError(
        f"{value!r} is no licence of a model card: write an id of "
        f"https://huggingface.co/docs/hub/repositories-licenses, such as {near}, or 'other'"
    )


def language_code(value: str) -> str:
    """Return a language, as an argparse type that refuses what is no code of ISO 639.

    The codes are those of the package `datasets`, of two letters where there are such. It is not
    imported, which takes seconds.
    """
    package = importlib.util.find_spec("datasets")
    assert package
    assert package.origin
    listed = Path(package.origin).parent / "utils" / "resources" / "languages.json"
    codes = json.loads(listed.read_text(encoding="utf-8"))
    if value in codes or value == "multilingual":
        return value
    wanted = value.lower()
    named = {name: code for code, names in codes.items() for name in names.lower().split("; ")}
    # Not short names: Ron is spoken in Nigeria, and ron is a code of Romanian.
    near = named.get(wanted) if len(wanted) > 3 else None
    near = near or wanted.replace("_", "-").partition("-")[0]
    example = near if near in codes else "ro or tzo"
    raise argparse.ArgumentTypeError(
        f"{value!r} is no language of a model card: write its code of ISO 639, of two letters "
        f"where there is one and of three where not, such as {example}"
    )


def dataset_licenses(names: Iterable[str]) -> dict[str, str]:
    """Return the licence of each corpus on the hub, or a clause on why none is known."""
    return {name: _dataset_license(name) for name in names}


def _dataset_license(name: str) -> str:
    from huggingface_hub import HfApi

    try:
        found = HfApi().dataset_info(name, timeout=_TIMEOUT_S)
    except Exception as error:  # offline, private, absent, or no answer: the card says so
        return f"its licence could not be looked up ({type(error).__name__})"
    given = found.card_data and found.card_data.license
    return ", ".join([given] if isinstance(given, str) else given or []) or NO_LICENSE


def is_name(name: str) -> bool:
    """Return whether this is OWNER/NAME of the hub rather than a file, a folder or an address."""
    return _NAME.fullmatch(name) is not None and not Path(name).exists()


def download(name: str, patterns: list[str]) -> Path:
    """Return the folder of that name, or else download files of the hub's model of that name.

    Raises:
      UserError: it is neither a folder nor a name of the hub, or it cannot be downloaded.
    """
    if Path(name).is_dir():
        return Path(name)
    if not is_name(name):
        raise UserError(
            f"{name} is not a folder, nor user/name of the hub: name a Hugging Face model's folder."
        )
    return fetch(name, patterns)


def fetch(name: str, patterns: list[str]) -> Path:
    """Return the folder of some files of the hub's model, or raise UserError."""
    check_hub_token()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        token = "; is HF_TOKEN valid?" if "401" in str(error) else ""
        raise UserError(
            f"{name} is not here, and cannot be downloaded from the hub: {first_line(error)}"
            f"{token}{without_hub(name, error)}"
        ) from error


def check_access(name: str) -> None:
    """Raise UserError unless the token may write to user/name; nothing is written.

    The hub is HF_ENDPOINT's or the public one, the token HF_TOKEN or the saved login. What only an
    upload can show, a right to one repository, is left to `upload`.
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
        raise UserError(f"--push_to_hub {name} is not of the form user/name.")
    token = "https://huggingface.co/settings/tokens and set HF_TOKEN to it, or `hf auth login`."
    api = HfApi()
    try:
        user = api.whoami()
    except (HfHubHTTPError, LocalTokenNotFoundError) as error:
        raise UserError(
            f"The hub accepts no token of yours ({first_line(error)}), so nothing can be uploaded "
            f"to {name}: create one at {token}"
        ) from error
    except _errors() as error:
        raise Failure(
            f"{api.endpoint} does not answer ({first_line(error)}), so nothing can be uploaded: "
            "connect this machine, or leave --push_to_hub out and upload the folder elsewhere."
        ) from error
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise UserError(
            f"Your token may only read, so nothing can be uploaded to {name}: create one that may "
            f"write at {token}"
        )


def upload(folder: Path, name: str, private: bool = False) -> str:
    """Upload a finished conversion, creating the repository if needed; return its address.

    `private` hides a new repository. Raise Failure if the hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi

    done = atomic_output.read_record(folder)
    if done is None:
        raise UserError(f"{folder} is not a finished conversion, so it is not uploaded.")
    api, step = HfApi(), done["steps"][-1]
    try:
        api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message=f"Step {step}")
    except _errors() as error:
        raise Failure(
            f"{folder} is converted, but the hub rejected {name}: {first_line(error)}"
        ) from error
    return f"{api.endpoint}/{name}"


def _errors() -> tuple[type[Exception], ...]:
    """Return what the hub's client raises; its HTTP library's errors are no OSError."""
    from huggingface_hub.errors import HfHubHTTPError

    return (OSError, *HfHubHTTPError.__bases__)
