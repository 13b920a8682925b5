"""Look at what a task makes of its corpus, before training.

    python -m tasks.look ro_mini_span_corruption
    python -m tasks.look my_task --module my_tasks --documents 5000 --lengths inputs=512,targets=114

It prints the figures of a sample (lengths, tokens a word, unknown characters, what is left out and
why, how far the records are mixed), ten documents and ten examples with their spans marked, and
writes the same in full as an HTML page. The sample is spread over the corpus, and nothing is read
beyond it.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import os
from collections.abc import Sequence

from common import arguments
from common.errors import guarded
from tasks import registered
from tasks.look import figures, page


@guarded
def main(argv: Sequence[str] | None = None) -> None:
    """Print the look, and write its page."""
    parser = arguments.parser("python -m tasks.look", __doc__)
    add = parser.add_argument
    add("task", type=arguments.text, help="a registered task's name")
    about = "the part of the corpus to sample, default train"
    add("--split", type=arguments.text, default="train", help=about)
    about = "how many to sample, default 1000"
    add("--documents", type=arguments.integer(1), default=1000, help=about)
    about = "inputs=512,targets=114: tokens of an example; default what the task needs"
    add("--lengths", default="", help=about)
    add("--seed", type=arguments.integer(0), default=0, help="another one draws another sample")
    about = "where the page is written, default runs/look_TASK.html"
    add("--html", type=arguments.text, help=about)
    about = "the module that registers the task; default all of tasks/"
    add("--module", action="append", help=about)
    add("--gin_bindings", action="append", default=[], help="a setting of gin, 'name = value'")
    flags = parser.parse_args(argv)
    path = flags.html or arguments.in_runs(f"look_{flags.task}.html")
    arguments.check_output_file("--html", path)
    lengths = arguments.lengths(flags.lengths)
    modules = tuple(flags.module or registered.every_module())
    task = registered.find(flags.task, "TASK", modules, flags.gin_bindings)
    if lengths:
        registered.check_features(task, lengths)
    found = figures.look(task, flags.split, flags.documents, lengths, flags.seed)
    print(page.as_text(found))
    with open(path, "w", encoding="utf-8") as file:
        file.write(page.as_html(found))
    print(f"\nwrote {os.path.abspath(path)}")


if __name__ == "__main__":
    main()
