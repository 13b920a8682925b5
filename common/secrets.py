"""Removes secrets from a text.

    public("https://me:word@example.org/a.jsonl?X-Amz-Signature=5f2")
    # https://example.org/a.jsonl?…
    is_signed("https://example.org/a.jsonl?X-Amz-Signature=5f2")     # True
    split_login("https://me:word@example.org/repo")
    # ("https://example.org/repo", "https://me:word@example.org")

Secrets are passwords and signatures in addresses, and tokens of the hub and of git servers.
"""

import re

_PROJECT = r"(?!project=[\w:-]+(?:[\s.]|$))"  # links to the console of a cloud have it
_SECRETS = [
    (re.compile(r"(?<=://)[^/\s'\"]*@"), ""),  # user and password
    (re.compile(rf"(https?://[^\s?'\"<>]*)\?{_PROJECT}[^\s'\"<>)\]]+"), r"\1?…"),  # any query
    (re.compile(rf"\?{_PROJECT}[\w.%~-]+=[^\s'\"<>)\]]*"), "?…"),  # one after a path alone
    (re.compile(r"\b(hf_|gh[oprsu]_|github_pat_|glpat-)[\w-]{16,}"), r"\1…"),
]
_SIGNED = re.compile(
    r"://.*[?&]([\w.-]*[-_.])?(sig|signature|token|(api)?key|secret|password|credential|auth)=",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(https?://)([^/@]*@)?([^/@]*)(.*)")


def public(text: str) -> str:
    """Return the text without users and queries in addresses, and without tokens."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def is_signed(address: str) -> bool:
    """Return whether the query of an address has a secret, as one that is signed has."""
    return bool(_SIGNED.search(address))


def split_login(address: str) -> tuple[str, str]:
    """Return an http(s) address without user and password, and its login, "" if it has none.

    The login is a line of git's file of credentials. Another address is returned unchanged.
    """
    match = _LOGIN.fullmatch(address)
    if match is None or match[2] is None:
        return address, ""
    scheme, login, host, path = match.groups()
    with_password = login if ":" in login else f"{login[:-1]}:@"
    return f"{scheme}{host}{path}", f"{scheme}{with_password}{host}"
