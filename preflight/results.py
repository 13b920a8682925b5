"""What a check found, how a check is run, and the table of all of them.

  row = judge("periods", check_periods, subject)    # never raises
  print(table([row]))

A check is a function that returns `ok(…)` or `warning(…)`, raises ValueError where a run would
fail, and NotChecked where it cannot look. Whatever else it raises is its own fault and is not taken
for the run's: it reads "not checked", and the other checks go on.
"""

import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

OK, WARNING, FAILS, NOT_CHECKED = "ok", "warning", "fails", "not checked"
_FIGURE, _TO_SET = 62, 42  # widths of the table's columns


class NotChecked(Exception):
    """A check that cannot look, here and now; its message says why."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
      verdict: OK, WARNING, FAILS or NOT_CHECKED.
      figure: what was found, or why it was not looked at.
      to_set: what to set instead, '' for nothing.
      text: what is shown below the table.
      numbers: the figures as numbers, for programs.
      check: the name of the check.
    """

    verdict: str
    figure: str
    to_set: str = ""
    text: str = ""
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    check: str = ""


def ok(figure: str, **rest) -> Row:
    """All is well."""
    return Row(OK, figure, **rest)


def warning(figure: str, to_set: str = "", **rest) -> Row:
    """A run would start, and something would be lost."""
    return Row(WARNING, figure, to_set, **rest)


def fails(figure: str, to_set: str = "", **rest) -> Row:
    """A run would not start, or not end."""
    return Row(FAILS, figure, to_set, **rest)


def judge(check: str, function: Callable[..., Row], *arguments) -> Row:
    """Runs one check; whatever happens in it becomes its row."""
    try:
        row = function(*arguments)
    except NotChecked as error:
        row = Row(NOT_CHECKED, str(error))
    except ValueError as error:
        row = fails(*_split(str(error)))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        row = Row(NOT_CHECKED, f"the check itself stopped: {reason}")
    return dataclasses.replace(row, check=check)


def _split(sentence: str) -> tuple[str, str]:
    """What is wrong and what to set, of a sentence that says both."""
    sentence = " ".join(sentence.split())
    # gin appends the configurables through which an exception passed.
    sentence = re.sub(r" In call to configurable .*", "", sentence)
    cut = re.fullmatch(r"(.*?)[;:,] (?:and )?((?:set|pass|include|make|check) .*?)\.?", sentence)
    return (cut[1], cut[2]) if cut else (sentence.rstrip("."), "")


def many(number: int, thing: str) -> str:
    """`2 hosts`, `1 host`, `3 copies`."""
    plural = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else plural}"


def passed(rows: Iterable[Row]) -> bool:
    """True where nothing fails; what was not checked does not fail."""
    return all(row.verdict != FAILS for row in rows)


def count(rows: Iterable[Row]) -> str:
    """How many rows have which verdict, in words."""
    verdicts = [row.verdict for row in rows]
    parts = [f"{verdicts.count(v)} {v}" for v in (OK, WARNING, FAILS, NOT_CHECKED) if v in verdicts]
    return ", ".join(parts)


def table(rows: Iterable[Row]) -> str:
    """The rows as columns: check, verdict, figure, what to set."""
    cells = [("check", "verdict", "figure", "what to set")]
    cells += [(row.check, row.verdict, row.figure, row.to_set) for row in rows]
    first = max(len(check) for check, *_ in cells)
    lines = []
    for check, verdict, figure, to_set in cells:
        left = textwrap.wrap(figure, _FIGURE) or [""]
        right = textwrap.wrap(to_set, _TO_SET, break_long_words=False) or [""]
        for i in range(max(len(left), len(right))):
            head = (check, verdict) if i == 0 else ("", "")
            body = (left[i] if i < len(left) else "", right[i] if i < len(right) else "")
            lines.append(
                f"{head[0]:<{first}}  {head[1]:<11}  {body[0]:<{_FIGURE}}  {body[1]}".rstrip()
            )
    return "\n".join(lines)


def texts(rows: Iterable[Row]) -> str:
    """What is shown below the table."""
    return "\n\n".join(
        f"{row.check}:\n{textwrap.indent(row.text, '  ')}" for row in rows if row.text
    )
