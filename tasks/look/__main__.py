"""Look at what a task makes of its corpus, before training.

    python -m tasks.look ro_mini_span_corruption
    python -m tasks.look my_task --module my_tasks --documents 5000 --lengths inputs=512,targets=114
    python -m tasks.look "/data/ro/*.jsonl.gz"      # or a folder, or a data set of the hub

It prints the figures of a sample (lengths, tokens a word, unknown characters, what is left out and
why, how far the records are mixed), ten documents and ten examples with their spans marked, and
writes the same in full as an HTML page. The sample is spread over the corpus, and nothing is read
beyond it. For a corpus without a task there are its documents and what is found in them, and for a
mixture which share of the documents of each of its corpora is in another.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse
import os
import re
from collections.abc import Sequence

import seqio

from common import arguments, tables
from common.errors import UserError, guarded
from common.new_files import replace_file
from common.secrets import public
from tasks import registered
from tasks.corpus import slices
from tasks.corpus.source import CorpusSource
from tasks.corpus.storage import names
from tasks.look import overlap, page, sample, sampling


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the flags."""
    parser = arguments.parser("python -m tasks.look", __doc__)
    add = parser.add_argument
    about = "a registered task or mixture; or a folder, file, pattern, address or hub name"
    add("corpus", type=arguments.text, metavar="TASK_OR_CORPUS", help=about)
    add("--config", help="configuration of a hub corpus")
    about = "column of the text of a corpus, or a template of several, '{title} {body}'"
    add("--column", type=arguments.text, default="text", help=about)
    about = "the part of the corpus to sample, default train"
    add("--split", type=arguments.text, default="train", help=about)
    about = "how many to sample, default 1000"
    add("--documents", type=arguments.integer(1), default=1000, help=about)
    about = (
        "inputs=512,targets=114: tokens of a row; the default, and the targets, are what it needs"
    )
    add("--lengths", default="", help=about)
    add("--seed", type=arguments.integer(0), default=0, help="another one draws another sample")
    about = "where the page is written, default runs/look_TASK.html"
    add("--html", type=arguments.text, help=about)
    about = "the module that registers the task; default all of tasks/"
    add("--module", action="append", help=about)
    add("--gin_bindings", action="append", default=[], help="a setting of gin, 'name = value'")
    return parser.parse_args(argv)


@guarded
def main(argv: Sequence[str] | None = None) -> None:
    """Print what the sample shows, and write it as an HTML page."""
    flags = parse_arguments(argv)
    name = re.sub(r"\W+", "_", public(flags.corpus)).strip("_")
    path = flags.html or arguments.result_path(f"look_{name}.html")
    arguments.check_output_file("--html", path)
    if not is_corpus(flags.corpus):
        registered.load(flags.module or registered.every_module(), flags.gin_bindings)
        if flags.corpus in seqio.MixtureRegistry.names():
            tasks = seqio.MixtureRegistry.get(flags.corpus).tasks
            print(tables.table([overlap.look(tasks, flags.split)]))
            return
    drawn = draw_texts(flags) if is_corpus(flags.corpus) else draw(flags)
    print(page.render_text(drawn))
    replace_file(path, page.render_html(drawn).encode())
    print(f"\nwrote {os.path.abspath(path)}")


def is_corpus(name: str) -> bool:
    """Return whether a name is of a corpus rather than of a task: a path, or OWNER/NAME."""
    return bool(re.search(r"[/*~@]|^\.", name)) or names.is_file(name)


def draw(flags: argparse.Namespace) -> sample.Sample:
    """Return the sample of the task that the flags name."""
    lengths = arguments.lengths(flags.lengths)
    modules = tuple(flags.module or registered.every_module())
    task = registered.find(flags.corpus, "TASK", modules, flags.gin_bindings)
    if lengths.keys() == {"inputs"}:
        lengths = sampling.default_lengths(task, **lengths) or lengths
    if lengths:
        registered.check_features(task, lengths)
    return sample.draw(task, flags.split, flags.documents, lengths, flags.seed)


def draw_texts(flags: argparse.Namespace) -> sample.Sample:
    """Return the sample of the corpus that the flags name; nothing is held out of it."""
    if flags.lengths:
        why = f"but {flags.corpus} is a corpus, and only a task has lengths"
        raise UserError("--lengths", flags.lengths, why, "leave it out, or name a task")
    registered.load(flags.module or (), flags.gin_bindings)
    corpus, splits = names.absolute_path(flags.corpus), (slices.full(flags.split),)
    source = CorpusSource(corpus, flags.config, column=flags.column, splits=splits)
    return sample.draw_texts(source, flags.split, flags.documents, flags.seed)


if __name__ == "__main__":
    main()
