"""How a command ends when it is given a bad value.

files = write_files(tmp_path / "files")
outcome = in_process(bad_values.BAD_VALUES[0], tmp_path / "folder", files)
outcome.fault           # "" if the value is refused as it should be
"""

import contextlib
import dataclasses
import importlib
import io
import os
import pathlib
import subprocess
import sys
import time
from unittest import mock

from common.errors import CommandError
from fakes.bad_values import BadValue
from fakes.main_module import as_main
from fakes.paths import ROOT
from fakes.refuses import reported

# The function of each command that gin configures.
TRAINING_COMMANDS = {
    "t5x.train": "train",
    "t5x.eval": "evaluate",
    "t5x.infer": "infer",
    "t5x.precompile": "precompile",
}
SECONDS = 30  # of a core, within which a value is refused


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command ended: its status, output, error and seconds, and the files that it left."""

    status: int
    said: str
    error: BaseException | None  # None if a parser of flags or a shell script has refused the value
    seconds: float
    written: tuple[str, ...]

    def names(self, name: str) -> bool:
        """Return whether a field of the error has a name, or else what was printed."""
        if isinstance(error := self.error, CommandError):
            fields = (error.where, error.setting, error.value, error.to_set)
            return any(name.lower() in str(field).lower() for field in fields)
        return name.lower() in self.said.lower()

    @property
    def fault(self) -> str:
        """What is wrong with it; '' if the value was refused well."""
        if self.seconds > SECONDS:
            return f"not within {SECONDS} s of a core"
        if self.status == 0:
            return "accepted"
        if "Traceback (most recent call last)" in self.said:
            return "traceback"
        if self.status < 0:
            return f"signal {-self.status}"
        if self.written:
            return f"wrote {', '.join(self.written)}"
        if "The traceback is in" in self.said:
            return "unexpected"
        return "" if self.said.strip() else "silent"


def write_files(folder: pathlib.Path) -> pathlib.Path:
    """Write the files that rows name, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("Un text scurt.\n")
    (folder / "empty.txt").write_text("")
    (folder / "random.jsonl").write_bytes(bytes(range(256)) * 4)
    (folder / "self.gin").write_text(f"include '{folder}/self.gin'\n")
    (folder / "a.gin").write_text(f"include '{folder}/b.gin'\n")
    (folder / "b.gin").write_text(f"include '{folder}/a.gin'\n")
    (folder / "broken.gin").write_text("TRAIN_STEPS = (5\n")
    return folder


def in_process(row: BadValue, folder: pathlib.Path, files: pathlib.Path) -> Outcome:
    """Run a command's main function in this process; a training command gets --dry_run.

    Shell scripts run in a process of their own, which ends before Python starts.
    """
    from fakes import valid_run

    folder.mkdir(parents=True)
    output, begun, arguments = io.StringIO(), time.process_time(), row.filled(folder, files)
    quiet = contextlib.redirect_stdout(output), contextlib.redirect_stderr(output)
    with quiet[0], quiet[1], valid_run.gin_apart(), reported() as reports:
        try:
            if row.command.startswith("launch/"):
                status = _bash(row.command, arguments)
            else:
                status = _call(row.command, arguments)
        except SystemExit as end:
            status = end.code
            if isinstance(status, str):
                print(status)
                status = 1
    error = reports[-1] if reports else None
    seconds = time.process_time() - begun
    return Outcome(status or 0, output.getvalue(), error, seconds, _written(folder))


def _call(command: str, arguments: list[str]) -> int | None:
    if command in TRAINING_COMMANDS:
        return _train(command, [*arguments, "--dry_run"])
    name = f"{command}.__main__" if (ROOT / command.replace(".", "/")).is_dir() else command
    return importlib.import_module(name).main(arguments)


def _train(command: str, arguments: list[str]) -> None:
    """Run a training command as if it had been started by its name."""
    from absl.testing import flagsaver

    from t5x.cli import main

    module = importlib.import_module(command)
    with (
        flagsaver.flagsaver(),
        as_main(module),
        mock.patch.object(sys, "argv", [command, *arguments]),
    ):
        main.run(getattr(module, TRAINING_COMMANDS[command]))


def _bash(script: str, arguments: list[str]) -> int:
    done = subprocess.run(
        ["bash", str(ROOT / script), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHON": sys.executable, "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=300,
    )
    print(done.stdout)
    return done.returncode


def _written(folder: pathlib.Path) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*")))
