"""Text of unknown origin, wherever commands print it."""

import pytest

from common import tables
from common.errors import UserError, report, say
from common.printable import printable

EVIL = "\x1b[31ma\u202eb\u2066\x07\x9bc\ud800"
SAFE = r"\x1b[31ma\u202eb\u2066\x07\x9bc\ud800"


@pytest.mark.parametrize(
    "text", ["", "Ana  are\tmere.\n", "می\u200cخواهم", "हिन्दी", "今天\u3000好", "🙂"]
)
def test_text_that_is_shown_stays(text):
    assert printable(text) == text


def test_what_a_terminal_would_obey_is_written_as_escapes():
    assert printable(EVIL) == SAFE


def test_no_sentence_and_no_table_has_it(capsys):
    say(EVIL)
    report(UserError(EVIL, EVIL, EVIL, EVIL).at(EVIL))
    tables.show([tables.warning(EVIL, EVIL, text=EVIL, check="a")])
    said = "".join(capsys.readouterr())
    assert said.count(r"\u202eb") == 9
    assert not {*EVIL} - {*"[31mabc"} & {*said}
