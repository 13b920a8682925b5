"""Write the task, the recipe and the launch script that train a model on a language or your text.

    python -m tasks.new_language czech --size base
    python -m tasks.new_language --corpus "/data/*.txt" --name uk --size tiny
    python -m tasks.new_language czech --from_corpora fineweb2,finepdfs,finewiki
    python -m tasks.new_language czech --kind modernbert --size small --phases
    python -m tasks.new_language georgian --from google/umt5-small --keep ron,bul,eng

The first command writes tasks/czech.py, gin/cs_t5x_base.gin and launch/cs_t5x_base.sh, which read
FineWeb-2. The second writes such files for text of yours, the third for a mixture of corpora of
`tasks.languages.public`, and the fourth an encoder: --kind is t5 (the default), t5gemma2, bert,
roberta or modernbert. They print the commands that follow: these train the vocabulary, train the
model and convert it. With --phases, a ModernBERT has three recipes: for short rows, for long rows,
and for the best text while the learning rate falls (docs/phases.md). Name a language by a code such
as ces_Latn or cs, by its English name, or by its own name. --name gives the files another name.
Without --size, the amount of text decides the size. The files are yours to change. If one of them
exists, the command writes nothing; with --overwrite, it replaces them.

With --from, the files add the language to an existing model (`tasks.scaffold.added_language`): a
Hugging Face T5, mT5, umT5, ByT5, XLM-R, RoBERTa or ModernBERT, or a run of your own. --from needs
--keep, which names the languages that the model keeps. The run reads their text too
(`eng=/data/en/*.txt` names files of yours), and the vocabulary loses the pieces that only other
languages use. With --keep all, the vocabulary loses no piece, and the run reads the new language
only. With --decay_only, the run first reads the kept languages alone; it reads the new one too
while the learning rate falls.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from common import log

    log.start()

import argparse

from common import arguments
from common.errors import ROOT, UserError, guarded
from common.printable import printable
from tasks.languages import table
from tasks.scaffold.added_language import AddedLanguage
from tasks.scaffold.files import check_name, write
from tasks.scaffold.kinds import KINDS
from tasks.scaffold.pretraining import PretrainingRecipe, suitable_size
from tasks.scaffold.starting_model import open_model
from tasks.scaffold.training_text import (
    ENGLISH,
    TrainingText,
    language_named,
    language_text,
    own_text,
)


def plan_addition(flags: argparse.Namespace, text: TrainingText) -> AddedLanguage:
    """Return the files and commands that add a text to the model `flags.start`.

    Raises:
      UserError: there is no such model or language.
    """
    if flag := next((name for name in ("kind", "size", "phases") if getattr(flags, name)), None):
        raise UserError(
            f"--{flag}",
            why="is of a model from nothing, and --from has its own",
            to_set="leave it out",
        )
    model = open_model(flags.start)
    keeps_pieces = flags.keep == "all"
    texts = {text.short: text}
    for language in [] if keeps_pieces else flags.keep.split(","):
        other = kept_text(language.strip(), flags.column, flags.documents)
        if other.short in (*texts, "others"):
            raise UserError(
                "--keep",
                why=f"names {other.short!r}, a name that is taken",
                to_set="name each language once, and not the new one, whose name --name sets",
            )
        texts[other.short] = other
    if flags.decay_only and len(texts) == 1:
        raise UserError(
            "--decay_only",
            why="reads the languages that stay before the new one",
            to_set="name them with --keep",
        )
    name = flags.name or f"{text.short}_{model.short}"
    return AddedLanguage(model, name, [*texts.values()], keeps_pieces, flags.decay_only)


def kept_text(
    argument: str, column: str | None = None, documents: str | None = None
) -> TrainingText:
    """Return the text of a language that stays, from its code or name, or name=files.

    `column` and `documents` are of the files, as in `own_text`.
    """
    name, equals, files = argument.partition("=")
    if equals:
        check_name(name, "--keep")
        return own_text(files, name, column, documents)
    if name.casefold() in table.ENGLISH:
        return ENGLISH
    return language_text(language_named(name))


def _check(flags: argparse.Namespace) -> None:
    """Raise UserError for flags that do not go together."""
    if (flags.language is None) == (flags.corpus is None):
        raise UserError(why="name a language, such as czech, or give --corpus with text of yours")
    if (flags.column or flags.documents) and not (flags.corpus or "=" in (flags.keep or "")):
        raise UserError(
            "--column and --documents",
            why="are of text of yours",
            to_set="give --corpus, or --keep name=FILES, too",
        )
    if flags.corpus and not flags.name:
        raise UserError("--corpus", why="needs a --name: --corpus '/data/*.txt' --name uk")
    if bool(flags.start) != bool(flags.keep) or (flags.decay_only and not flags.start):
        raise UserError(
            "--from and --keep", why="go together: --from google/umt5-small --keep ron,bul"
        )
    if flags.from_corpora and (flags.corpus or flags.start):
        why = "are of a language and of a model from nothing"
        raise UserError("--from_corpora", flags.from_corpora, f"which {why}", "leave it out")
    if flags.name:
        check_name(flags.name, "--name")
    sizes = KINDS[flags.kind or "t5"].sizes
    if flags.phases and not sizes["tiny"].long_inputs:
        raise UserError("--phases", why="is for --kind modernbert", to_set="add that")
    if flags.size and flags.size not in sizes:
        raise UserError(
            "--size", flags.size, f"but --kind {flags.kind} has {', '.join(sizes)}", "name another"
        )


@guarded
def main(argv: list[str] | None = None) -> None:
    """Write the files of a language, or of text of the user's."""
    parser = arguments.parser("python -m tasks.new_language", __doc__)
    add = parser.add_argument
    about = "a code (ces_Latn, cs) or a name (czech, čeština), for FineWeb-2"
    add("language", nargs="?", type=arguments.text, help=about)
    about = "your text instead: a folder, files, @ and a list, or a hub name"
    add("--corpus", type=arguments.text, help=about)
    about = "the column of --corpus with the text, or a template: '{title} {body}'"
    add("--column", type=arguments.text, help=about)
    about = "what a document is in plain text: lines (the default), paragraphs, files, or the line "
    about += "that stands between documents, such as '%%'"
    add("--documents", type=arguments.text, help=about)
    about = "the public corpora of the language to mix, default fineweb2: fineweb2,finewiki"
    add("--from_corpora", metavar="CORPORA", type=arguments.text, help=about)
    about = "what the files are called, such as uk; default by the language"
    add("--name", type=arguments.text, help=about)
    add(
        "--kind",
        choices=KINDS,
        help="of the model, default t5; t5gemma2 generates too, the others are encoders",
    )
    sizes = KINDS["t5"].sizes
    add("--size", choices=sizes, help="of the model; default by the amount of text")
    about = "with --kind modernbert: train in three phases, of short rows, long rows and best text"
    add("--phases", action="store_true", help=about)
    about = "add the language to this model: a hub name, a folder or a run"
    add("--from", dest="start", metavar="MODEL", type=arguments.text, help=about)
    about = "with --from: the languages that stay, such as ron,bul,eng; or all"
    add("--keep", type=arguments.text, help=about)
    about = "with --from: read the new language only while the rate falls"
    add("--decay_only", action="store_true", help=about)
    add("--overwrite", action="store_true", help="replace the files if they exist")
    flags: argparse.Namespace = parser.parse_args(argv)
    _check(flags)
    if flags.corpus:
        text = own_text(flags.corpus, flags.name, flags.column, flags.documents)
    else:
        text = language_text(language_named(flags.language), flags.name, flags.from_corpora)
    if flags.start:
        addition = plan_addition(flags, text)
        print(printable(text.summary))
        print(printable(addition.report(write(addition.files(), ROOT, flags.overwrite))))
        return
    kind = flags.kind or "t5"
    size = flags.size or suitable_size(text, kind)
    recipe = PretrainingRecipe(text, size, kind, flags.phases)
    print(printable(recipe.report(write(recipe.files(), ROOT, flags.overwrite))))


if __name__ == "__main__":
    main()
