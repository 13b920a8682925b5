"""Removes secrets from a text.

    public("https://me:word@example.org/a.jsonl?X-Amz-Signature=5f2")
    # https://example.org/a.jsonl?…

Secrets are passwords and signatures in addresses, and tokens of the hub.
"""

import re

_SECRETS = [
    (re.compile(r"(?<=://)[^/\s'\"]*@"), ""),  # user and password
    (re.compile(r"(https?://[^\s?'\"<>]*)\?[^\s'\"<>)\]]+"), r"\1?…"),  # any query
    (re.compile(r"\?[\w.%~-]+=[^\s'\"<>)\]]*"), "?…"),  # one after a path alone
    (re.compile(r"\bhf_\w{16,}"), "hf_…"),
]


def public(text: str) -> str:
    """Return the text without users and queries in addresses, and without the hub's tokens."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text
