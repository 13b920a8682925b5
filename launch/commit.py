#!/usr/bin/env python3
"""Look whether the commit that workers get has what a run reads: python3 launch/commit.py SCRIPT …

    python3 launch/commit.py launch/ro_t5x_base.sh --gin.TRAIN_STEPS=500000

`launch/tpu.py run` and `supervise` look before they start anything. Before launch/jobset.yaml is
applied, this command does. It needs git and no packages. Where the clone has a .venv, the recipe
says which files it reads (`preflight.files`); else all count that lie where a run reads.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pathlib
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("common", "gin", "launch", "requirements", "t5x", "tasks", "vocabularies")
LARGE = 50_000_000  # bytes; git servers refuse files that are not much larger
SHOWN = 8  # names in a sentence


class Failed(Exception):
    """One sentence for the user."""


class Origin(NamedTuple):
    """What workers pull: an address, a branch ("" for the repository's own), and git's login."""

    address: str
    branch: str = ""
    login: str = ""


def git(*words: str) -> str:
    """Return what git prints in this clone; raise Failed if it fails."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-C", str(ROOT), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = done.stderr.partition("\n\n")[0].rstrip(".").splitlines()  # advice follows
        raise Failed(f"git {words[0]} failed: {'; '.join(lines) or 'no reason'}.")
    return done.stdout


def names(*words: str) -> set[str]:
    """Return the paths that git prints."""
    return {path for path in git(*words).split("\0") if path}


def fetch(origin: Origin) -> str:
    """Return the commit that workers would pull now, which this clone has afterwards."""
    with tempfile.NamedTemporaryFile("w") as file:  # which no other user can read
        print(origin.login, file=file, flush=True)
        helper = ["-c", f"credential.helper=store --file {file.name}"] if origin.login else []
        git(*helper, "fetch", "--quiet", origin.address, origin.branch or "HEAD")
    return git("rev-parse", "FETCH_HEAD").strip()


def recipe_of(script: str, flags: list[str]) -> str:
    """Return the gin file of the recipe that a launch script trains, "" if it is not known.

    A script has its recipe's name; launch/train.sh gets that as its first word.
    """
    for name in (pathlib.Path(script).stem, *flags[:1]):
        file = f"gin/{pathlib.Path(name).stem}.gin"
        if (ROOT / file).is_file():
            return file
    return ""


def interpreter() -> str:
    """Return a Python with the packages of the locks, "" if there is none here."""
    python = os.environ.get("PYTHON") or str(ROOT / ".venv/bin/python")
    return python if os.access(python, os.X_OK) else ""


def needed_files(script: str, flags: list[str]) -> dict[str, str]:
    """Return the setting that names each path that a run reads, "" for code and gin files."""
    python, recipe = interpreter(), recipe_of(script, flags)
    if not (recipe and python):
        others = ["--cached", "--others", "--exclude-standard"]
        return dict.fromkeys(sorted(names("ls-files", "-z", *others, "--", *FOLDERS)), "")
    command = [python, "-m", "preflight.files", f"--gin_file={recipe}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        reason = ["no reason", *done.stderr.splitlines()][-1]
        raise Failed(f"{recipe} cannot be read: {reason.replace('Error: ', '', 1)}")
    lines = (line.partition("\t") for line in done.stdout.splitlines())
    scripts = sorted(names("ls-files", "-z", "--", "launch"))  # they call each other
    return {**dict.fromkeys([script, *scripts], ""), **{path: name for path, _, name in lines}}


class Look(NamedTuple):
    """What a run reads, held against the commit that workers get.

    `lacking` are the files of this clone that the commit lacks or has otherwise, `missing` those
    that are nowhere, and `elsewhere` those of this machine outside the clone; the latter two by
    path, with the setting that names them.
    """

    commit: str
    origin: Origin
    lacking: list[str]
    missing: dict[str, str]
    elsewhere: dict[str, str]

    def need_all(self, sends: bool = False) -> None:
        """Raise Failed with the commands that bring what is lacking.

        With `sends` what this clone has may be lacking.
        """
        for path, setting in self.missing.items():
            remedy = f"set {setting} to one at gs://…" if setting else "make it"
            if setting == "VOCABULARY_FILE":
                remedy = f"make it by python -m vocabulary.train, or {remedy}"
            raise Failed(f"{path} does not exist, which the run reads: {remedy}.")
        size = lambda path: (ROOT / path).stat().st_size
        large = [path for path in self.lacking if size(path) > LARGE]
        if large and not sends:
            copy = "copy it to a bucket in the slice's region (gcloud storage cp)"
            raise Failed(f"{shown(large)} is too large for a commit: {copy}, and name that.")
        if self.lacking and not sends:
            where = f"{self.commit[:12]} of {self.origin.address}"
            commands = " && ".join(self.commands())
            lack = f"the commit that workers get ({where}) lacks {shown(self.lacking)}"
            raise Failed(f"{lack}: {commands}; or --send copies what is not committed.")

    def commands(self) -> list[str]:
        """Return the commands that bring what is lacking into the commit that workers get."""
        unsaved = names("diff", "--name-only", "-z", "HEAD")
        unsaved |= {*self.lacking} - names("ls-files", "-z")
        changed = [path for path in self.lacking if path in unsaved]
        ignored = [path for path in changed if is_ignored(path)]
        commands = []
        if changed:
            force = "-f " if ignored else ""
            commands = [f"git add {force}{shlex.join(changed)}", "git commit -m 'Add a run'"]
        if self.commit not in git("rev-list", "HEAD").split():
            commands.append("git pull --rebase")
        here = git("branch", "--show-current").strip()
        if self.origin.branch in ("", here):
            return [*commands, "git push"]
        return [*commands, f"git push origin HEAD:{self.origin.branch}"]

    def archive(self) -> bytes:
        """Return the files that are lacking as a compressed tar archive, b"" if none is."""
        if not self.lacking:
            return b""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for path in self.lacking:
                archive.add(ROOT / path, path)
        return content.getvalue()


def is_ignored(path: str) -> bool:
    """Return whether .gitignore names a path."""
    command = ["git", "-C", str(ROOT), "check-ignore", "--quiet", path]
    return not subprocess.run(command).returncode


def shown(paths: list[str]) -> str:
    """Return the first paths, and how many follow."""
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


def look(script: str, flags: list[str], origin: Origin) -> Look:
    """Hold what a run reads against the commit that workers would pull now."""
    needed, commit = needed_files(script, flags), fetch(origin)
    has = names("ls-tree", "-r", "--name-only", "-z", commit)
    changed = names("diff", "--name-only", "-z", commit)
    with contextlib.suppress(Failed):  # of another history; else what others changed is no lack
        changed &= names("diff", "--name-only", "-z", git("merge-base", commit, "HEAD").strip())
    lacking, missing, elsewhere = list[str](), dict[str, str](), dict[str, str]()
    for path, setting in needed.items():
        if os.path.isabs(path):
            (elsewhere if os.path.exists(path) else missing)[path] = setting
        for file in files_of(path):
            if file not in has or file in changed:
                lacking.append(file)
        is_there = (ROOT / path).exists() or any(f.startswith(f"{path}/") for f in has | {path})
        if not (os.path.isabs(path) or is_there or path in has):
            missing[path] = setting
    return Look(commit, origin, lacking, missing, elsewhere)


def files_of(path: str) -> Iterator[str]:
    """Yield the files of this clone at a path, which may be a folder, by path from its root."""
    place = ROOT / path
    if not os.path.isabs(path):
        places = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (str(file.relative_to(ROOT)) for file in places if file.is_file())


def main() -> int:
    """Look, and say what is lacking or that nothing is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("script", help="the launch script of the run")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="its flags")
    words = parser.parse_args()
    look(words.script, words.flags, Origin("origin")).need_all()
    print("The last push has what the run reads.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        print(f"commit.py: {error}", file=sys.stderr)
        sys.exit(2)
