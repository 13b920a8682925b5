"""Results of checks: how one check is run, and the table of all of them.

A check returns `ok(…)` or `warning(…)`, raises UserError where a run would fail, and NotChecked
where it cannot look. Any other exception is a fault of the check and not of the run: the result is
"not checked", and the other checks still run.
"""

import dataclasses
import functools
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from common.errors import CommandError, class_and_line, text_of
from common.printable import printable

T = TypeVar("T")
OK, WARNING, FAILS, NOT_CHECKED = "ok", "warning", "fails", "not checked"
# Columns of a table where there is no terminal, and in a wide one, whose lines are hard to follow.
_NO_TERMINAL, _WIDEST = 100, 120
_NARROWEST = 24  # of a table's last column
_COLOURS = {WARNING: "\x1b[33m", FAILS: "\x1b[31m"}  # yellow, red


class NotChecked(Exception):
    """A check cannot be made here and now; the message says why."""


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """One line of the table."""

    verdict: str  # OK, WARNING, FAILS or NOT_CHECKED
    figure: str  # the finding, or why nothing was checked
    to_set: str = ""  # the remedy, as an imperative
    text: str = ""  # details to print below the table
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # figures for programs
    check: str = ""  # its name


ok = functools.partial(CheckResult, OK)  # no fault was found
warning = functools.partial(CheckResult, WARNING)  # would start, but waste or lose something
fails = functools.partial(CheckResult, FAILS)  # would not start, or not finish


def judged(
    check: str, is_right: bool, figure: str, to_set: str = "", otherwise: str = FAILS
) -> CheckResult:
    """Return the result of a check: ok if `is_right`, else `otherwise` and what to set."""
    return CheckResult(
        OK if is_right else otherwise, figure, "" if is_right else to_set, check=check
    )


def run_check(name: str, check: Callable[..., CheckResult], *arguments: Any) -> CheckResult:
    """Return the result of `check(*arguments)`, whatever it raises."""
    try:
        result = check(*arguments)
    except NotChecked as error:
        result = CheckResult(NOT_CHECKED, str(error))
    except CommandError as error:
        result = fails(error.fault, error.to_set)
    except ValueError as error:
        result = fails(" ".join(text_of(error).split()).rstrip("."))
    except Exception as error:
        reason = class_and_line(error)[:200]
        result = CheckResult(NOT_CHECKED, f"the check itself failed: {reason}")
    return dataclasses.replace(result, check=name)


def counted(number: float, noun: str, spec: str = ",") -> str:
    """Return number and noun: `2 hosts`, `1 host`, `3 copies`, with ".2g" `1 epoch` for 0.999."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    text = format(number, spec)
    return f"{text} {noun if text == '1' else plural}"


def first_names(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, and how many more there are: `a, b and 7 more`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def data_size(number: float) -> str:
    """Return a number of bytes with a decimal unit that fits: `12 B`, `1.11 KB`, `24 GB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if number >= 0.9995 * size:  # below, three digits do not round to 1
            return f"{float(f'{number / size:.3g}'):,.15g} {unit}"
    return f"{number:.0f} B"


def amount(number: float) -> str:
    """Return a large number in three digits: `1.25 M`, `40 k`, `7`."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def time_span(seconds: float, of: str = "") -> str:
    """Return seconds in a unit that fits: `7.5 seconds`, `3.2 hours`, of "chip" `41 chip-hours`."""
    unit, size = "hour", 3600.0
    if seconds < 120:
        unit, size = "second", 1.0
    elif seconds < 7200:
        unit, size = "minute", 60.0
    number = f"{seconds / size:,.{0 if seconds >= 1000 * size else 1}f}".removesuffix(".0")
    return f"{number} {f'{of}-' if of else ''}{unit}{'' if number == '1' else 's'}"


def passed(results: Iterable[CheckResult]) -> bool:
    """Return whether no check fails; one that was not made does not fail."""
    return all(result.verdict != FAILS for result in results)


def summary(results: Iterable[CheckResult]) -> str:
    """Return the number of results of each verdict, in words."""
    verdicts = [result.verdict for result in results]
    return ", ".join(
        f"{verdicts.count(v)} {v}" for v in (OK, WARNING, FAILS, NOT_CHECKED) if v in verdicts
    )


def spread(rows: Sequence[T], most: int) -> Sequence[T]:
    """Return at most `most` rows at equal distances, the first and the last among them."""
    if len(rows) <= most:
        return rows
    return [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]


def terminal_width() -> int:
    """Return the columns of the terminal, or those of a line where there is none."""
    return min(shutil.get_terminal_size((_NO_TERMINAL, 0)).columns, _WIDEST)


def has_colours() -> bool:
    """Return whether stdout is a terminal with colours that the user has not turned off."""
    is_off = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return sys.__stdout__ is not None and sys.__stdout__.isatty() and not is_off


def table(results: Iterable[CheckResult]) -> str:
    """Return the results as columns: check, verdict, and the figure above what to set.

    The table is as wide as the terminal, and a verdict other than ok has a colour there.
    """
    rows = [CheckResult("verdict", "figure → what to set", check="check"), *results]
    width = max(len(row.check) for row in rows)
    rest = max(terminal_width() - width - len(f"  {NOT_CHECKED}  "), _NARROWEST)
    colours = _COLOURS if has_colours() else {}
    lines = []
    for row in rows:
        text = textwrap.wrap(printable(row.figure), rest)
        if row.to_set:  # commands and paths stay whole, to be copied
            text += textwrap.wrap(
                f"→ {printable(row.to_set)}", rest, subsequent_indent="  ", break_long_words=False
            )
        first, *others = text or [""]
        verdict = f"{row.verdict:<{len(NOT_CHECKED)}}"
        if colour := colours.get(row.verdict):
            verdict = f"{colour}{verdict}\x1b[0m"
        lines.append(f"{row.check:<{width}}  {verdict}  {first}".rstrip())
        lines += [f"{'':<{width + len(NOT_CHECKED) + 4}}{line}" for line in others]
    return "\n".join(lines)


def show(results: Sequence[CheckResult]) -> int:
    """Print the table, the texts below it and the summary; return the status, 1 if one fails."""
    print(table(results))
    if texts := details(results):
        print(f"\n{texts}")
    print(f"\n{summary(results)}")
    return 0 if passed(results) else 1


def details(results: Iterable[CheckResult]) -> str:
    """Return the texts to print below the table."""
    texts = [f"{r.check}:\n{textwrap.indent(r.text, '  ')}" for r in results if r.text]
    return printable("\n\n".join(texts))
