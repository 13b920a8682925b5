"""The licences and languages that a model card on the hub can name, as types of flags."""

import argparse
import difflib
import importlib.util
import json
from pathlib import Path

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
