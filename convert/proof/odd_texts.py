"""A fixed table of odd texts.

    texts = [*odd_texts(), *texts_of(tokenizer.get_vocab())]

Corpora of the web contain such texts, and tokenizers stumble over them.
"""

import collections
import functools
import random
import unicodedata
from collections.abc import Sequence

_LETTERS, _LONG = 12, 10_000
_FIXED = (
    "",
    " ",
    "a",
    "Ana are mere, iar țăranii și-au strâns grânele înainte de furtună.",
    "The quick brown fox jumps over 13 lazy dogs, doesn't it?",
    "Ştiinţa cu sedile; «ghilimele» „românești” – și 3,14 lei/m².",
    "  două  spații,\tun tab și\no linie nouă  ",
    "\n\n\r\nlinii\r\n\r\ngoale\n\n\n",
    "▁ ▁▁ a▁b ▁a▁ Ġ Ċ ## ##a @@ </w>",
    # Numbers, dates, addresses, code and markup.
    "1.234.567,89 0x1F4A9 1e-6 ½ ⅓ m² H₂O № 5 ① Ⅻ 25° 50% ±3 −4 10⁻⁹",
    "12:30 2024-02-29 +40 21 312 44 15 000,50 lei",
    "https://ro.wikipedia.org/wiki/Ană?x=1&y=%C4%83#sus ana@exemplu.ro #etichetă @nume C:\\dosar",
    "def f(x):\n\tif x != 0 and x >= -1:\n        return {'a': [x**2, ~x]}  # notă\n",
    '<p class="a">Text &nbsp;&amp; <b>gras</b><br/></p> <!-- notă --> {{șablon|a=1}} [[legătură]]',
    "\\begin{equation} \\frac{a_1}{b^2} \\leq \\sum_{i=0}^{n} x_i \\end{equation} $5 $$y$$",
    "ALL CAPS, CamelCase, snake_case, kebab-case, ß ẞ İ ı ſ ŉ ǆ Σ σ ς",
    ".... ...... !!!! ?!?! ---- ____ ==== **** //// \\\\\\\\ ~~~~ \"\" '' `` «» ‹› „” ‘’ … ‥",
    "aaaaaaaaaaaaaaaaaaaa hahahahahahaha 000000000000 。。。。 ーーーー",
    # Decomposed letters, composed ones with more signs, signs out of order, alone, and in heaps.
    "e\u0301 a\u0306 s\u0326 t\u0327 o\u0323\u0301 e\u0302\u0301 a\u0302\u0323",
    "u\u031b\u0323 A\u030a z\u0300\u0301\u0302\u0303 \u0301 x\u0344 \u0344 q\u0303",
    "ạ\u0302 ê\u0301 ǖ ﬁ\u0301 ½\u0301 …\u0301 ﬆ\u0300",
    "ب\u0651\u064e ب\u064e\u0651 ש\u05c1\u05b8 क\u093c ক\u09cd\u200dষ น้ำ ກຳ",
    "\u1100\u1161\u11a8 \u1100\u1161 가\u11a8 각",
    "ﾊﾞ ﾊﾟ ｶﾞｷﾞ ㄱㅏ ㅋㅋㅋ は\u3099 ゝ\u3099 ㈱ ㌀ ㎡ ﷺ ﻻ Å Ω K ẛ\u0323 ϓ\u0301",
    # Joiners, marks of direction and what is not seen.
    "می\u200cخواهم \u200b\u200c\u200d\u200e\u200f\u2060\ufeff soft\u00adhyphen \u061c\u180e\u034f",
    "\u202aab\u202c \u202bab\u202c \u202dab \u202eab\u202c",
    "\u2066ab\u2069 \u2067ab\u2069 \u2068ab\u2069",
    "a\ufe0e\ufe0f \U000e0100 \U000e0061\U000e007f \ufff9a\ufffab\ufffb \ufffc \ufffd",
    # Emoji: flags, skin, families, keycaps, and hearts of text and of colour.
    "🙂 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇷🇴🇲🇩 🇷 1️⃣ #️⃣ ❤ ❤️ ☃ ™ ©️ 🏴\U000e0067\U000e0062\U000e007f 🫠 🪿",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 Ｆｕｌｌｗｉｄｔｈ ～ ｱｲｳ ⓐⓑ ⒈ ⑴ 🄰🄱",
    # Private and unassigned characters, and signs that Unicode has since its version 17.
    "½\u1ad2 ﬁ\u1add\xa0\u1ad2\t4 …\U0001e6f5",
    "\ue000 \uf8ff \U000f0000 \U0010fffd \u0378 \u0530 \U0001ffff \U000e0fff",
)


@functools.cache
def odd_texts() -> tuple[str, ...]:
    """Return the texts: fixed ones, controls, blanks, a text of each script, and long words."""
    controls = [chr(c) for c in (*range(1, 32), *range(0x7F, 0xA0))]
    characters = [chr(c) for c in range(0xA0, 0x20000) if not 0xD800 <= c < 0xE000]
    blanks = [c for c in characters if c.isspace()]
    texts = [f"{c} crește{c}spun {c}{c} {c}" for c in (*controls, *blanks)]
    scripts: dict[str, list[str]] = collections.defaultdict(list)
    signs: dict[str, list[str]] = collections.defaultdict(list)
    for c in characters:
        script = unicodedata.name(c, "").partition(" ")[0]
        if c.isalpha():
            scripts[script].append(c)
        elif unicodedata.category(c)[0] == "M":
            signs[script].append(c)
    for script, letters in scripts.items():
        first, last = letters[:_LETTERS], letters[-_LETTERS:]
        script_signs = [sign for sign in signs[script][:_LETTERS] if sign <= "\uffff"]
        spelled = "".join(a + b for a, b in zip(letters, script_signs, strict=False))
        texts.append(f"{''.join(first)} {''.join(last)} {spelled}.")
    living = [text for text in (*_FIXED, *texts) if not text or max(text) <= "\uffff"]
    texts += [unicodedata.normalize("NFD", text) for text in living]
    long = [letter * _LONG for letter in ("a", "ă", "漢", "ab1-", "🙂", "e\u0301")]
    return tuple(dict.fromkeys((*_FIXED, *texts, *long)))


def texts_of(pieces: Sequence[str], count: int = 200, words: int = 30) -> list[str]:
    """Return texts made of a vocabulary's pieces, drawn at random."""
    generator, texts = random.Random(0), []
    for _ in range(count if pieces else 0):
        drawn = "".join(generator.choices(pieces, k=words))
        for mark, text in (("▁", " "), ("Ġ", " "), ("##", "")):
            drawn = drawn.replace(mark, text)
        texts.append(drawn.strip())
    return texts
