"""Reads the events of a run from `events.jsonl`.

    history = History(lines)
    history.spans       # [Span("compile", 1760000000.0, 8.2, step=0), …] for the timeline
    history.configs     # [(step, time, text), …], one for each change
    history.infills     # {"Copiii merg la <extra_id_0>.": [(100, "Copiii merg la [școală]."), …]}

They give the timeline, the configurations and the filled sentences.
"""

import copy
import dataclasses
from typing import Any

from common.gin_reader import Bindings
from common.small_files import parse_json

RUNNING = "running"  # a kind of span
_ENDS = {"interrupted": "interrupted", "end": "ended", "failed": "failed"}  # states by event
_INSTANTS = {"saved", *_ENDS}
_NUMBERS = ("step", "seconds", "total_steps")
_SILENT_S = 900.0  # a run without any output for so long is not called running


@dataclasses.dataclass(frozen=True)
class Span:
    """An activity that began at `time` (since 1970) and took `seconds`, 0 for an instant."""

    kind: str
    time: float
    seconds: float
    step: int | None = None
    detail: str = ""


class History:
    """The events in the lines of `events.jsonl`; damaged and unknown lines are skipped.

    `last_seen` is the time of the last output of any kind, in seconds since 1970. A run that did
    not report its end counts as running until then.
    """

    def __init__(self, text: str, last_seen: float = 0.0):
        self.events = [event for line in text.split("\n") if (event := _event(line))]
        self.events.sort(key=lambda event: event["time"])
        self.last_seen = max([last_seen, *(event["time"] for event in self.events)])

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The starts, the oldest first."""
        return [event for event in self.events if event["event"] == "start"]

    @property
    def places_of_starts(self) -> list[tuple[int, float]]:
        """The (step, time) of every start, the oldest first."""
        return [(int(_number(start.get("step"))), start["time"]) for start in self.starts]

    @property
    def origin(self) -> tuple[str, int] | None:
        """The folder and the step of the run that this one goes on from, None without."""
        begin = self.starts[0] if self.starts else {}
        folder = str(begin.get("begun_from") or "").rstrip("/").rpartition("/")[0]
        return (folder, int(_number(begin.get("step")))) if folder else None

    def after(self, other: "History", step: int) -> "History":
        """Return this history after that of `other` up to a step."""
        both = copy.copy(self)
        before = [event for event in other.events if _number(event.get("step")) <= step]
        both.events = sorted([*before, *self.events], key=lambda event: event["time"])
        return both

    def state(self, now: float) -> str:
        """Return 'ended', 'interrupted', 'failed', 'running', 'silent' or 'unknown'."""
        if not self.events:
            return "unknown"
        ends = [e["event"] for e in self.events if e["event"] in (*_ENDS, "start")]
        if ends and ends[-1] != "start":
            return _ENDS[ends[-1]]
        return "running" if now - self.last_seen < _SILENT_S else "silent"

    @property
    def spans(self) -> list[Span]:
        """The times when the run ran, and its activities besides training."""
        spans: list[Span] = []
        start, before = None, 0.0
        for event in self.events:
            kind, time = event["event"], event["time"]
            if start and kind in ("start", *_ENDS):
                # A run that was killed has not reported its end.
                spans.append(_running(start, before if kind == "start" else time))
                start = None
            if kind == "start":
                start = event
            else:
                seconds = 0.0 if kind in _INSTANTS else _number(event.get("seconds"))
                detail = str(event.get("task") or event.get("reason") or "")
                spans.append(Span(kind, time - seconds, seconds, event.get("step"), detail))
            before = time
        if start:
            spans.append(_running(start, self.last_seen))
        return sorted(spans, key=lambda span: (span.time, span.kind != RUNNING))

    @property
    def configs(self) -> list[tuple[int, float, str]]:
        """The (step, time, text) of every start that has a configuration."""
        return [
            (int(_number(e.get("step"))), e["time"], e["config"])
            for e in self.starts
            if isinstance(e.get("config"), str)
        ]

    @property
    def infills(self) -> dict[str, list[tuple[int, str]]]:
        """The (step, filled sentence) by sentence; a repeated step counts once, as it was last."""
        infills: dict[str, dict[int, str]] = {}
        for event in self.events:
            pairs = event.get("sentences") if event["event"] == "infill" else None
            for sentence, filled in (pairs if isinstance(pairs, dict) else {}).items():
                infills.setdefault(sentence, {})[int(_number(event.get("step")))] = str(filled)
        return {sentence: sorted(steps.items()) for sentence, steps in infills.items()}

    @property
    def phases(self) -> list[int]:
        """The first step of each phase: of each run, and of a mixture whose rates change."""
        phases = self.starts[-1].get("phases") if self.starts else None
        steps = [int(s) for s in phases if s.isdecimal()] if isinstance(phases, dict) else []
        begins = [start for i, start in enumerate(self.starts) if not i or start.get("begun_from")]
        return sorted({*steps, *(int(_number(start.get("step"))) for start in begins)})

    @property
    def expected_loss(self) -> list[tuple[int, float]]:
        """The (step, loss) of a known good run, from the last start."""
        losses = self.starts[-1].get("expected_loss") if self.starts else None
        losses = losses if isinstance(losses, dict) else {}
        return sorted(
            (int(s), float(x)) for s, x in losses.items() if s.isdecimal() and _is_number(x)
        )


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = parse_json(line)
    except ValueError:
        return None
    if not isinstance(event.get("event"), str) or not _is_number(event.get("time")):
        return None
    wrong = [n for n in _NUMBERS if n in event and not _is_number(event[n])]
    return {name: value for name, value in event.items() if name not in wrong}


def _running(start: dict[str, Any], end: float) -> Span:
    devices = f"{start.get('devices', '?')} × {start.get('device', '?')}"
    return Span(RUNNING, start["time"], max(end - start["time"], 0.0), start.get("step"), devices)


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else 0.0


def _is_number(value: Any) -> bool:
    """Return whether a JSON value is a finite number that fits 64 bits."""
    return type(value) in (int, float) and abs(value) < 2**63


def changes(before: str, after: str) -> list[tuple[str, str | None, str | None]]:
    """Return (name, old value, new value) of what differs in two gin files, None if not set.

    A file that cannot be read sets nothing.
    """
    old, new = _bindings(before), _bindings(after)
    names = sorted(old.keys() | new.keys())
    return [(n, old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)]


def _bindings(text: str) -> dict[str, str]:
    try:
        return Bindings.read(text).texts()
    except ValueError:
        return {}
