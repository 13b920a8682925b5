"""Plain English: a short list of phrases that the sources, scripts and pages do not use."""

import pathlib
import re
import subprocess

from fakes.paths import ROOT

# The phrase, and what to write instead.
BANNED = {
    r"(go|goes|went|going) on(?! the\b)": "continue, resume",
    r"anew": "again, a new …",
    r"told|tells": "reported, shown, says",
    r"mend(ed|s|ing)?": "fix, repair",
    r"for ever": "forever, without limit",
    r"of which": "two sentences",
    r"whole": "complete, full, entire, total",
    r"stands(?! for\b)|as it stands": "is",
    r"doors?": "entry point",
    r"rooms|the house": "package, architecture",
    r"by turns": "alternately, round-robin",
    r"of (theirs|ours|yours)": "their, our, your",
    r"one's": "your, its",
    r"the like of": "such as",
    r"lies?(?! (between|within)\b)": "is",
    r"pass(ed|es) over": "skip",
    r"(take|takes|taken|took) along": "include",
    r"(is|are) asked of": "call, request",
    r"in vain": "without success",
    r"nobody": "no one, nothing",
    r"(is|are) at hand": "is available",
    r"(make|makes|made) ready": "prepare",
}
# Names that must stay: an objective, a value of `when_failed`, a function of NumPy.
ALLOWED = re.compile(r"whole[ _-]words?|\bgo_on\b|take_along_axis", re.IGNORECASE)
PATTERN = re.compile(rf"(?<![a-z])({'|'.join(BANNED)})(?![a-z])", re.IGNORECASE)

ENDINGS = ("*.py", "*.sh", "*.md", "*.gin", "*.yaml", "*.yml", "*.toml")


def texts() -> list[pathlib.Path]:
    command = ["git", "ls-files", "-co", "--exclude-standard", *ENDINGS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    paths = [ROOT / path for path in done.stdout.split()]
    return [p for p in paths if p.exists() and p != pathlib.Path(__file__)]


def banned_phrases(text: str) -> list[str]:
    """Return the phrases of a text that are banned; `a_name` counts as two words."""
    return [match[0] for match in PATTERN.finditer(ALLOWED.sub("", text).replace("_", " "))]


def test_a_phrase_is_found_in_prose_and_in_names():
    assert banned_phrases("The run goes on.\ndef test_it_is_told():") == ["goes on", "told"]
    assert not banned_phrases("A wholesale retold story of whole-word masking: whole_words.")


def test_the_sources_use_plain_english():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {phrase!r}"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for phrase in banned_phrases(line)
    ]
    assert not found, "\n" + "\n".join(found) + f"\nWrite instead: {BANNED}"
