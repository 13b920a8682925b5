"""Checks as a table, and whether they passed."""

from vocabulary.check_results import VocabularyCheck, passed, table


def test_passed_ignores_warnings():
    assert passed([VocabularyCheck("a", "ok", ""), VocabularyCheck("b", "warn", "")])
    assert not passed([VocabularyCheck("a", "ok", ""), VocabularyCheck("b", "fail", "")])


def test_the_table_is_aligned():
    checks = [VocabularyCheck.of("eos id", True, "1"), VocabularyCheck.of("size", False, "5 of 3")]
    assert table(checks) == "eos id  ok    1\nsize    fail  5 of 3"
