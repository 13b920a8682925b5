"""What a check found, and the table that shows it."""

import dataclasses
from collections.abc import Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class Finding:
    """One check: its name, "ok", "warn" or "fail", and the figure or the reason."""

    check: str
    verdict: str
    figure: str

    @classmethod
    def of(cls, check: str, ok: bool, figure: str, otherwise: str = "fail") -> "Finding":
        """A finding whose verdict is "ok" where `ok` holds, `otherwise` where it does not."""
        return cls(check, "ok" if ok else otherwise, figure)


def passed(findings: Iterable[Finding]) -> bool:
    """True where no finding failed; warnings pass."""
    return all(finding.verdict != "fail" for finding in findings)


def table(findings: Sequence[Finding]) -> str:
    """The findings as aligned lines of check, verdict and figure."""
    width = max(len(finding.check) for finding in findings)
    return "\n".join(f"{f.check:<{width}}  {f.verdict:<4}  {f.figure}" for f in findings)
