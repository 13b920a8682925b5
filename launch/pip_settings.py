"""Print pip's settings of this environment as uv's variables, each NAME=value.

    python -m pip config list | python launch/pip_settings.py

uv does not read pip's files and variables. Variables of uv that are already set are left out.
"""

import ast
import os
import sys
from collections.abc import Mapping

# The setting of pip (https://pip.pypa.io/en/stable/cli/pip_install) and the variable of uv
# (https://docs.astral.sh/uv/reference/environment), with what separates several values there.
NAMES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "proxy": ("ALL_PROXY", " "),
    "cert": ("SSL_CERT_FILE", " "),
}


def translate(listed: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables of uv for the lines KEY='value' that `pip config list` prints."""
    settings = {}
    # A variable comes before a file, and the section of a command before the general one.
    for section in ("global.", "install.", ":env:."):
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(section):
                settings[key.removeprefix(section)] = ast.literal_eval(value)
    # pip treats all indexes as equal; uv would take a package from the first one that has its name.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for key, (name, separator) in NAMES.items():
        if key in settings:
            variables[name] = separator.join(settings[key].split())
    return {name: value for name, value in variables.items() if name not in environment}


if __name__ == "__main__":
    for name, value in translate(sys.stdin.read(), os.environ).items():
        print(f"{name}={value}")
