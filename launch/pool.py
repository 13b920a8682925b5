"""Slices of several types and zones, of which a run takes the first that is granted.

    types = fitting_flags("launch/ro_t5x_base.sh", [], ["v6e-16", "v6e-8"])
    offers = make_offers(Slice("ro", "", settings), ["us-east5-a"], [*types], {"spot": True}, types)
    offer = acquire(offers)           # asks for all, and waits for the first
    offer.tpu, offer.flags            # ro-v6e-16-us-east5-a, and the flags that fit a run to it

It runs on the user's own machine, by Python 3.9 without packages.
"""

from __future__ import annotations

import re
import subprocess
from typing import Any, NamedTuple

from launch import commit
from launch.commit import Failed
from launch.slices import Slice, say, say_when

ENDED = ("FAILED", "SUSPENDING", "SUSPENDED")  # states of a request that gives no slice any more
DAY = 86_400
UNITS = {"s": 1, "m": 60, "h": 3600, "d": DAY}
SHORTEST, LONGEST = 600, 7 * DAY  # of flex-start slices; set-up takes half of the former
REFUSED_SECONDS = 900  # before gcloud is asked again for what it has refused


class Offer(NamedTuple):
    """A slice to ask for, the arguments of `create` for it, and the flags of a run on its type."""

    tpu: Slice
    kind: dict[str, Any]
    flags: list[str]

    def __str__(self) -> str:
        return f"{self.kind['type']} in {self.tpu.zone}"


def gcloud_type(type: str) -> str:
    """Return a type of slice as gcloud calls it."""
    return re.sub("^v5e-", "v5litepod-", type)


def check(tpu: Slice, zones: list[str], types: list[str]) -> None:
    """Raise Failed for types and zones that could not be asked for, before anything is compiled."""
    for type in types:
        if not re.fullmatch("[a-z0-9]+-[0-9]+", type):
            raise Failed(f"--any has {type!r}, not a type: write them like v6e-16,v4-32.")
        tpu.runtime_of({"type": gcloud_type(type)})
    names = [*map(gcloud_type, types), *zones]
    for name in names:
        if names.count(name) > 1:
            raise Failed(f"{name} is named twice: name each type and each zone once.")
    for zone in zones:
        Slice(tpu.name, zone, tpu.settings, tpu.clock).queue_state()


def make_offers(
    tpu: Slice,
    zones: list[str],
    types: list[str],
    kind: dict[str, Any],
    flags: dict[str, list[str]],
) -> list[Offer]:
    """Return an offer for each pair of a type and a zone; types come first.

    Their slices have the name of `tpu` with type and zone; `kind` is what all have, and `flags` are
    those of each type.
    """
    offers = []
    for type in types:
        for zone in zones:
            slice = Slice(f"{tpu.name}-{type}-{zone}", zone, tpu.settings, tpu.clock)
            offers.append(Offer(slice, {**kind, "type": gcloud_type(type)}, flags[type]))
    return offers


def acquire(offers: list[Offer]) -> Offer:
    """Ask for all slices, and return the first that is granted; raise Failed if none may be.

    A request that has ended is deleted, since it counts against the quota, and asked for again.
    One that is refused is asked for again later: the reason may have been an outage, or pass.
    """
    shown: dict[str, str] = {}
    refused: dict[str, float] = {}  # until when
    while len(refused) < len(offers):
        states: dict[str, str] = {}
        for offer in offers:
            if offer.tpu.clock.time() < refused.get(str(offer), 0):
                continue
            try:
                state = states[str(offer)] = offer.tpu.queue_state()
            except Failed as error:  # an outage, for one
                say_when(error)
                continue
            if state != shown.get(str(offer)):
                say_when(f"the request for {offer} is {state}")
                shown[str(offer)] = state
            if state == "ACTIVE":
                return offer
        for offer in offers:  # no slice is there yet, one of an earlier command included
            tpu, state = offer.tpu, states.get(str(offer), "not known")
            try:
                if state == "MISSING":
                    tpu.request(offer.kind)
                    refused.pop(str(offer), None)
                elif state in ENDED:
                    if reason := tpu.failure():
                        say_when(f"it gives no slice{reason}; it is made again.")
                    tpu.drop()
            except Failed as error:
                say_when(error)
                if state == "MISSING":
                    refused[str(offer)] = tpu.clock.time() + REFUSED_SECONDS
        offers[0].tpu.clock.sleep(offers[0].tpu.numbers["TPU_POLL_SECONDS"])
    raise Failed(f"gcloud refuses all requests: {', '.join(map(str, offers))}: see above.")


def clean(slices: list[Slice]) -> list[Slice]:
    """Begin to delete slices and their requests, and return those of which something is left."""
    left = []
    for tpu in slices:
        try:
            is_gone = tpu.drop()
        except Failed as error:
            say_when(error)
            is_gone = False
        if not is_gone:
            left.append(tpu)
    return left


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration such as 24h or 1d12h; raise Failed for one beyond 7 days."""
    parts = re.findall(r"(\d+)([smhd])", duration)
    seconds = sum(int(number) * UNITS[unit] for number, unit in parts)
    if not seconds or "".join(map("".join, parts)) != duration:
        raise Failed(f"--flex is {duration!r}, no duration: write 24h, 90m or 1d12h.")
    if seconds > LONGEST:
        raise Failed(f"--flex is {duration}, and a flex-start slice lives 7 days: set it to 7d.")
    if seconds < SHORTEST:
        raise Failed(f"--flex is {duration}, in which nothing is trained: set it to 10m or more.")
    return float(seconds)


def fitting_flags(script: str, flags: list[str], types: list[str]) -> dict[str, list[str]]:
    """Return the flags with which a run's batch fits each type, without types that it does not fit.

    Where the recipe of the script is not known, or this clone has no .venv that compiles it for
    TPUs, all get none.
    """
    python, recipe = commit.interpreter(), commit.recipe_of(script, flags)
    look = [python, "-c", "import libtpu"]
    has_compiler = python and not subprocess.run(look, capture_output=True).returncode
    if not (recipe and has_compiler):
        lack = "no .venv with libtpu to compile it" if recipe else f"no recipe of {script}"
        say(f"warning: each type gets the recipe's own settings, since there is {lack}.")
        return {type: [] for type in types}
    fitting = {}
    for type in types:
        say(f"Compiling for {type}, which takes a minute or more.")
        command = [python, "-m", "preflight.fit", f"--gin_file={recipe}", f"--slice={type}", *flags]
        done = subprocess.run(command, capture_output=True, text=True, cwd=commit.ROOT)
        if done.returncode:
            say(f"{type} is left out: {['no reason', *done.stderr.splitlines()][-1]}")
        else:
            fitting[type] = [line for line in done.stdout.splitlines() if line.startswith("--gin.")]
            say(f"{type}: {' '.join(fitting[type]) or 'the recipe fits as it is'}")
    if not fitting:
        raise Failed("the run fits none of the types: see above.")
    return fitting
