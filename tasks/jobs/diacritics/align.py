"""Diacritics of a free decoding on the letters of its input.

    onto("Fata vine maine", "Fața vina  mâine!", alphabet("ro"))   -> "Fața vine mâine"

A model may drop, repeat or replace what it reads. So only its choice of diacritics is taken, and
only for letters that it wrote; all else is the input's.
"""

import difflib

from tasks.jobs.diacritics.letters import Alphabet


def onto(text: str, decoded: str, letters: Alphabet) -> str:
    """Return `text` with the diacritics that `decoded` has on the same letters.

    The result has the same bare letters as `text`, one for one. If `decoded` has them too, the
    result is `decoded`, except that letters which have diacritics in `text` keep them.
    """
    bare, given = letters.bare(text), letters.bare(decoded)
    if bare == given:
        blocks = [difflib.Match(0, 0, len(bare))]
    else:
        blocks = difflib.SequenceMatcher(None, bare, given, autojunk=False).get_matching_blocks()
    found = list(text)
    for start, where, size in blocks:
        for i, letter in enumerate(decoded[where : where + size], start):
            if text[i] == bare[i]:
                found[i] = letter
    return "".join(found)
