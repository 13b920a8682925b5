"""Can the run be published once it is trained? Asked before it starts, of `convert.publishable`.

    result = check(model, specs, lambda: first_lines(dataset_cfg))    # a CheckResult, or UserError

The converter needs transformers and torch, which this process does without: it describes the run in
a temporary folder, and another process exports it. The answer is kept for the same vocabulary,
network, text and version of the converter.
"""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import seqio
from absl import logging
from flax.traverse_util import flatten_dict

from common import small_files
from common.errors import ROOT, UserError
from common.source import source_of
from common.tables import FAILS, NOT_CHECKED, OK, CheckResult
from t5x import gin_utils
from t5x.input_pipeline.config import DatasetConfig
from t5x.multihost.broadcast import broadcast_from_first
from t5x.settings.configuration import current
from t5x.start.model_dir import DESCRIPTION, vocabulary_files, write_description
from t5x.train_state import StateSpecs

LINES, _DOCUMENTS, _SECONDS = 10_000, 500, 600
NOT_ASKED = CheckResult(NOT_CHECKED, "a run that resumes, or --allow_unpublishable")


def check(model: Any, specs: StateSpecs, lines: Callable[[], list[str]]) -> CheckResult:
    """Export the untrained run, and return that its ids are equal; one host does it for all.

    `lines` returns some lines of the run's corpus. The result is NOT_CHECKED, with the reason, for
    a run without gin files, for a network or vocabulary of the user's own, and if a library is
    missing.

    Raises:
      UserError: the run could not be published.
    """
    result = CheckResult(**broadcast_from_first(lambda: vars(_check(model, specs, lines))))
    if result.verdict == FAILS:
        raise UserError(why=result.figure, to_set=result.to_set)
    if result.verdict == NOT_CHECKED:
        logging.info("Whether the run can be published is not known: %s.", result.figure)
    return result


def _check(model: Any, specs: StateSpecs, lines: Callable[[], list[str]]) -> CheckResult:
    name = type(getattr(model.module, "config", None)).__name__
    bound = current().of(name)
    if not bound:
        return CheckResult(
            NOT_CHECKED, f"no gin file binds network.{name}, which a converter reads"
        )
    is_bytes = isinstance(model.output_vocabulary, seqio.ByteVocabulary)
    if not (is_bytes or vocabulary_files(model)):
        kind = type(model.output_vocabulary).__name__
        return CheckResult(NOT_CHECKED, f"a {kind} has no file to make a tokenizer of")
    converter = _run("convert.version")
    if converter.returncode:
        return CheckResult(NOT_CHECKED, converter.stdout.strip() or _last_line(converter.stderr))
    with tempfile.TemporaryDirectory() as run:
        folder = pathlib.Path(run)
        gin_utils.summarize_gin_config(run, None, 0)
        write_description(run, model, specs)
        flat = flatten_dict(specs.on_disk["target"], sep="/")
        shapes = {path: array.shape for path, array in flat.items()}
        (folder / "shapes.json").write_text(json.dumps(shapes))
        (folder / "texts.json").write_text(json.dumps({"lines": lines()}))
        digest = hashlib.sha256(repr((converter.stdout, sorted(bound.items()))).encode())
        for file in sorted(folder.glob("**/*.*")):
            if file.name not in ("config.gin", DESCRIPTION):
                digest.update(file.read_bytes())
        record = pathlib.Path.home() / ".cache" / "t5x" / "publishable" / digest.hexdigest()
        with contextlib.suppress(OSError, ValueError, TypeError):  # missing or damaged
            return CheckResult(**small_files.read_json(record))
        result = _ask(folder)
        if result.verdict == OK:
            with contextlib.suppress(OSError):  # the next start checks again
                record.parent.mkdir(parents=True, exist_ok=True)
                record.write_text(json.dumps(dataclasses.asdict(result)))
        return result


def _ask(folder: pathlib.Path) -> CheckResult:
    """Return the converter's result for a run that is described in `folder`."""
    try:
        export = _run("convert.publishable", str(folder))
        return CheckResult(
            **small_files.parse_json(export.stdout.replace(f"{folder}/", "the run's "))
        )
    except subprocess.TimeoutExpired:
        return CheckResult(NOT_CHECKED, f"the export of the untrained run took {_SECONDS} s")
    except ValueError:
        reason = _last_line(export.stderr)
        return CheckResult(NOT_CHECKED, f"the export of the untrained run failed: {reason}")


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, cwd=ROOT)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:200]


def first_lines(cfg: DatasetConfig) -> list[str]:
    """Return the first `LINES` lines of the corpora, in equal shares."""
    tasks = cfg.tasks_with_split
    share, sample = LINES // max(len(tasks), 1), []
    for task in tasks:
        lines: list[str] = []
        for documents in (_DOCUMENTS, share):  # documents of one line are read again
            texts = source_of(task).peek(cfg.split, documents)
            lines = [line for text in texts for line in text.split("\n") if line][:share]
            if len(lines) == share or len(texts) < documents:
                break
        sample += lines
    return sample
