"""The result of one check, and the table that shows several."""

import dataclasses
from collections.abc import Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class VocabularyCheck:
    """One check: its name, its status "ok", "warn" or "fail", and a figure or the reason."""

    name: str
    status: str
    detail: str

    @classmethod
    def of(cls, name: str, ok: bool, detail: str, otherwise: str = "fail") -> "VocabularyCheck":
        """Return a check whose status is "ok" if `ok`, else `otherwise`."""
        return cls(name, "ok" if ok else otherwise, detail)


def passed(checks: Iterable[VocabularyCheck]) -> bool:
    """Return whether no check failed; warnings pass."""
    return all(check.status != "fail" for check in checks)


def table(checks: Sequence[VocabularyCheck]) -> str:
    """Return the checks as aligned lines of name, status and detail."""
    width = max(len(check.name) for check in checks)
    return "\n".join(f"{c.name:<{width}}  {c.status:<4}  {c.detail}" for c in checks)
