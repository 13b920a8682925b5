"""Clean a corpus of JSON lines with datatrove: one language, no near-duplicates.

  uv venv clean
  uv pip install --python clean/bin/python "datatrove[io,processing]" aiohttp spacy
  clean/bin/python docs/clean_corpus.py /data/raw /data/clean ro ron_Latn [--html]

fastText must recognize the language, `ro`; `ron_Latn` chooses the rules that cut words. With
`--html` the text is raw HTML, of which Trafilatura keeps the main text. Started again, the command
continues.
"""

import argparse

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.filters import LanguageFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("source", help="a folder of *.jsonl or *.jsonl.gz, with the column text")
parser.add_argument("target", help="the folder for the clean corpus; <target>_work has the rest")
parser.add_argument("language", help="of fastText: ro")
parser.add_argument("script", help="language and script, for the rules that cut words: ron_Latn")
parser.add_argument("--html", action="store_true", help="the text is raw HTML")


def main(args: argparse.Namespace) -> None:
    """Filter the source, then remove near-duplicates."""
    work = f"{args.target}_work"
    filtered, signatures = f"{work}/filtered", f"{work}/signatures"
    bands, removed = f"{work}/bands", f"{work}/removed"

    def run(name, *steps, tasks=8):  # tasks: pieces of the corpus, each read by one process
        log = f"{work}/logs/{name}"  # pieces that it lists as complete are not done again
        LocalPipelineExecutor([*steps], tasks=tasks, workers=2, logging_dir=log).run()

    # 1. Documents of the language. The default limit of a page, one second, includes the time to
    # load Trafilatura.
    run(
        "filtered",
        JsonlReader(args.source, text_key="text", glob_pattern="*.jsonl*"),
        *([Trafilatura(timeout=20)] if args.html else []),
        LanguageFilter(args.language, language_threshold=0.5),
        JsonlWriter(filtered),
    )
    # 2. Near-duplicates, of which one is kept.
    signed = MinhashDedupSignature(signatures, language=args.script)
    run("signatures", JsonlReader(filtered), signed)
    run("bands", MinhashDedupBuckets(signatures, bands), tasks=14)
    run("clusters", MinhashDedupCluster(bands, removed), tasks=1)
    kept = JsonlWriter(args.target, output_filename="train-${rank}.jsonl.gz")
    run("kept", JsonlReader(filtered), MinhashDedupFilter(removed), kept)


if __name__ == "__main__":
    main(parser.parse_args())
