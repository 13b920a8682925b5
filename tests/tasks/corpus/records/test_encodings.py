"""The encoding that is named is one by which the text reads as it was written."""

import pytest

from tasks.corpus.records.encodings import likely_encoding

TEXTS = {
    "cp1251": "Рядок 7 про місто і воду, а також про людей, які живуть у ньому.",
    "koi8-r": "Строка 7 говорит о городе и воде, а также о людях, которые там живут.",
    "cp866": "Строка 7 говорит о городе и воде, а также о людях, которые там живут.",
    "cp1250": "Řádek 7 říká něco o městě, vodě a o lidech, kteří v něm žijí.",
    "iso8859-2": "Wiersz 7 mówi coś o mieście, wodzie i ludziach, którzy żyją.",
    "iso8859-1": "La ligne 7 parle de la ville, de l'été et des gens très âgés qui y vivent.",
    "cp1252": "Zeile 7 erzählt von der Straße, dem Fluß und den Leuten „für später“.",
    "cp1253": "Η γραμμή 7 λέει κάτι για την πόλη, το νερό και τους ανθρώπους.",
    "cp1254": "Satır 7 şehir, su ve içinde yaşayan insanlar hakkında bir şey söylüyor.",
    "cp1255": "שורה 7 אומרת משהו על העיר, המים והאנשים שחיים בה",
    "cp1256": "السطر 7 يتحدث عن المدينة والماء والناس الذين يعيشون فيها",
    "cp1257": "Eilutė 7 sako kažką apie miestą, vandenį ir žmones, kurie čia gyvena.",
    "cp874": "บรรทัดที่ 7 พูดถึงเมือง น้ำ และผู้คนที่อาศัยอยู่",
    "gbk": "第7行说的是城市、水和住在那里的人们，今天天气很好。",
    "big5": "第7行說的是城市、水和住在那裡的人們，今天天氣很好。",
    "shift_jis": "7行目は街と水とそこに住む人々について述べています。",
    "euc_jp": "7行目は街と水とそこに住む人々について述べています。",
    "cp949": "7번째 줄은 도시와 물 그리고 그곳에 사는 사람들에 대해 말합니다.",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_a_text_reads_by_the_encoding_that_is_named(encoding):
    data = TEXTS[encoding].encode(encoding)
    assert data.decode(likely_encoding(data)) == TEXTS[encoding]


@pytest.mark.parametrize("data", [b"", b"plain", bytes(range(128, 256))])
def test_what_reads_by_none_is_not_named(data):
    assert likely_encoding(data) == ""
