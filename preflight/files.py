"""List the files that a run reads, so that launch/commit.py can ask whether its workers have them.

    python -m preflight.files --gin_file gin/ro_t5x_tiny.gin
    gin/ro_t5x_tiny.gin
    data/ro_mini/ro_mini.model	VOCABULARY_FILE
    …

Each line has a path, from the repository's root if it lies there, and after a tab the setting that
names it; code and gin files have none. Nothing is read over the network: a bucket, a server and the
hub are the same for every machine, and are left out. Other flags of the trainer are ignored.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # this machine trains nothing

from common import arguments
from common.errors import ROOT, guarded
from common.printable import printable
from preflight.aot import recipe as recipes
from preflight.run_context import is_remote
from t5x.gin_utils import rewrite_gin_args
from tasks import vocabularies
from tasks.corpus.source import CorpusSource
from tasks.tokenizer_vocabulary import TOKENIZER_FILE

VOCABULARY, CHECKPOINT = "VOCABULARY_FILE", "utils.RestoreCheckpointConfig.path"


def list_files(recipe: recipes.Recipe) -> dict[str, str]:
    """Return the setting that names each file or folder that a run reads, "" for code.

    Raises:
      UserError: the recipe cannot be read, or a local corpus cannot be listed.
    """
    gin_files = recipes.parse(recipe)
    recipes.finalize(recipe)
    run = recipes.build()
    files = [(str(path), "") for path in [*gin_files, *_modules()]]
    files += [(path, VOCABULARY) for path in _vocabularies(run)]
    files += _corpora(run)
    restore = run.checkpoint_cfg.restore
    files += [(path, CHECKPOINT) for path in (restore.paths if restore else ())]
    return {_from_root(path): setting for path, setting in files if not is_remote(path)}


def _modules() -> Iterator[str]:
    """Yield the files of the repository that have been imported, without those that only ask."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        if path.startswith(f"{ROOT}/") and not path.startswith((f"{ROOT}/preflight", sys.prefix)):
            yield path


def _vocabularies(run: Any) -> Iterator[str]:
    """Yield the files of the vocabularies of the model and of all tasks; bytes have none."""
    used = [run.model.input_vocabulary, run.model.output_vocabulary]
    for cfg in recipes.datasets(run).values():
        for task in cfg.tasks_with_split:
            used += [f.vocabulary for f in vocabularies.token_features(task).values()]
    for vocabulary in used:
        if path := vocabularies.file_of(vocabulary):  # a tokenizer is the folder of its files
            yield path.removesuffix(f"/{TOKENIZER_FILE}")


def _corpora(run: Any) -> Iterator[tuple[str, str]]:
    """Yield the lists of corpora, and the files of local ones, with the task that reads them."""
    for cfg in recipes.datasets(run).values():
        for task in cfg.tasks_with_split:
            if isinstance(source := task.source, CorpusSource):
                files = source.list_files(cfg.split) if source.is_local else ()
                paths = [part.url for file in files for part in file.sides or (file,)]
                yield from ((path, f"the task {task.name}") for path in (*source.lists, *paths))


def _from_root(path: str) -> str:
    """Return a path from the repository's root, or an absolute one outside of it."""
    absolute = Path(os.path.abspath(path))
    return str(absolute.relative_to(ROOT) if absolute.is_relative_to(ROOT) else absolute)


@guarded
def main(argv: list[str] | None = None) -> None:
    """Print the files of a recipe."""
    parser = arguments.parser("python -m preflight.files", __doc__)
    recipes.add_flags(parser)
    flags, _ = parser.parse_known_args(rewrite_gin_args(sys.argv[1:] if argv is None else argv))
    for path, setting in list_files(recipes.Recipe.of_flags(flags)).items():
        print(printable(f"{path}\t{setting}"))


if __name__ == "__main__":
    sys.exit(main())
