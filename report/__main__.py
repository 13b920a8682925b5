r"""Report a run as one HTML page, or as a picture.

    python -m report runs/ro_t5x_tiny
    python -m report runs/a gs://bucket/b -o runs/both.html --watch
    python -m report runs/base runs/long runs/decay
    python -m report runs/ro_t5x_tiny --png docs/quickstart.png

Of several runs, those that begin from a checkpoint of another one are drawn as one curve with it.
Without a folder it takes the newest run of runs/. With --watch it writes the page again every
minute, until Ctrl-C.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Sequence

from common import arguments
from common.errors import UserError, guarded, say
from common.new_files import replace_file
from common.tables import counted, data_size
from report import page
from report.charts import draw_loss
from report.phases import joined
from report.run_data import HISTORY, Cache, Folder, RunData, load


@guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Write the page or the picture, and return the exit status."""
    parser = arguments.parser("python -m report", __doc__)
    add, text = parser.add_argument, arguments.text
    about = "a folder or gs://…; default the newest run of runs/"
    add("model_dirs", nargs="*", type=text, metavar="MODEL_DIR", help=about)
    add("-o", "--out", type=text, metavar="HTML", help="the page, default runs/report_<run>.html")
    about = "draw the loss to this file; -o writes the page as well"
    add("--png", type=text, metavar="PNG", help=about)
    about = "write it again every minute, or SECONDS; the open page reloads itself"
    seconds = arguments.number(above=0)
    add("--watch", nargs="?", type=seconds, const=60.0, metavar="SECONDS", help=about)
    return _report(parser.parse_args(argv))


def _report(values: argparse.Namespace) -> int:
    cache: Cache = {}
    model_dirs = [*dict.fromkeys(values.model_dirs)] or [_newest_run()]
    name = "_".join(path.rstrip("/").rpartition("/")[2] for path in model_dirs[:3])
    out = values.out or (None if values.png else arguments.result_path(f"report_{name}.html"))
    if out:
        arguments.check_output_file("--out", out)
    if values.png:
        arguments.check_output_folder("--png", str(pathlib.Path(values.png).parent))
        if pathlib.Path(values.png).parent.is_dir():
            arguments.check_output_file("--png", values.png)
    if values.watch is None:
        for path in model_dirs:
            if not Folder(path).exists():
                raise UserError(
                    str(path), why="is not a folder", to_set="name the MODEL_DIR of a run"
                )
    try:
        while True:
            runs = joined([load(Folder(path), cache) for path in model_dirs])
            _write(runs, out, values.png, values.watch)
            if values.watch is None:
                return 0
            time.sleep(values.watch)
    except KeyboardInterrupt:
        _write(runs, out, values.png, None)
        return 0


def _newest_run() -> str:
    """Return the run of runs/ whose history changed last."""
    histories = pathlib.Path("runs").glob(f"*/{HISTORY}")
    newest = max(histories, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise UserError("runs/", why="holds no run", to_set="name the MODEL_DIR of a run")
    return str(newest.parent)


def _write(runs: Sequence[RunData], out: str | None, png: str | None, reload: float | None) -> None:
    if png:
        draw_loss(runs, pathlib.Path(png))
    if out:
        replace_file(out, page.html(runs, time.time(), reload).encode())
        size = data_size(pathlib.Path(out).stat().st_size)
        print(f"{out}: {counted(len(runs), 'run')}, {size}", file=sys.stderr)
    for run in runs:
        for note in run.notes:
            say(f"{run.name}: {note}")


if __name__ == "__main__":
    sys.exit(main())
