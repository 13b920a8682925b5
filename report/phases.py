"""Joins runs that go on from one another, such as the phases of a model, to one run.

joined([base, long, decay])      # [RunData("base → long → decay")]
"""

import itertools
import math
from collections.abc import Sequence

from report.run_data import RunData
from report.series import Series, join


def joined(runs: Sequence[RunData]) -> list[RunData]:
    """Return the runs, each after the run that it goes on from, if that is among them.

    A run that another one goes on from is not returned by itself, unless it trained on beyond that
    step, as the source of a cooldown branch may do.
    """
    chains = [_chain(run, runs) for run in runs]
    links = [link for chain in chains for link in itertools.pairwise(chain)]
    shown = {id(before) for before, after in links if before.last_step <= _first_step(after)}
    return [_whole(chain) for chain in chains if id(chain[-1]) not in shown]


def _chain(run: RunData, runs: Sequence[RunData]) -> list[RunData]:
    """Return the runs that `run` goes on from, the oldest first, and it.

    A run may have been copied since, so that only its name is as it was. Of several of that name
    it is the one whose path agrees longest with the recorded one, read from the end; none if two
    agree alike.
    """
    chain = [run]
    while origin := chain[0].history.origin:
        agreements = [_agreement(run.path, origin[0]) for run in runs]
        before = runs[agreements.index(max(agreements))]
        is_certain = max(agreements) > 0 and agreements.count(max(agreements)) == 1
        if not is_certain or any(before is later for later in chain):
            break
        chain.insert(0, before)
    return chain


def _agreement(path: str, other: str) -> int:
    """Return how many parts two paths have in common, from the last one on."""
    pairs = zip(path.split("/")[::-1], other.split("/")[::-1], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _first_step(run: RunData) -> int:
    return run.history.origin[1] if run.history.origin else 0


def _whole(chain: Sequence[RunData]) -> RunData:
    """Return runs, each of which goes on from the one before, as one."""
    parts: dict[str, dict[str, list[Series]]] = {}
    history = chain[0].history
    ends = [*map(_first_step, chain[1:]), math.inf]
    for run, end in zip(chain, ends, strict=True):
        for folder, tags in run.series.items():
            for tag, series in tags.items():
                if len(before := series.at(series.steps <= end)):
                    parts.setdefault(folder, {}).setdefault(tag, []).append(before)
        if run is not chain[0]:
            history = run.history.after(history, _first_step(run))
    return RunData(
        " → ".join(run.name for run in chain),
        chain[-1].path,
        {
            folder: {tag: join(p) if p[1:] else p[0] for tag, p in tags.items()}
            for folder, tags in parts.items()
        },
        history,
        chain[-1].config,
        [note for run in chain for note in run.notes],
    )
