"""No text shows a token or the secret part of an address; the rest of the address stays."""

import pytest

from common.secrets import public


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:word@a.org/b.jsonl", "https://a.org/b.jsonl"),
        ("s3://me:wo@rd@a.org/b.jsonl", "s3://a.org/b.jsonl"),
        ("https://a.org/b.jsonl?X-Amz-Signature=word", "https://a.org/b.jsonl?…"),
        ("https://a.org/b.jsonl?word", "https://a.org/b.jsonl?…"),
        ("https://a.org/b.jsonl?raw&key=word", "https://a.org/b.jsonl?…"),
        ("('https://a.org/b.jsonl?word', 404)", "('https://a.org/b.jsonl?…', 404)"),
        ("/b.jsonl?key=word is 404", "/b.jsonl?… is 404"),
        ("hf_wordwordwordwordword is used", "hf_… is used"),
    ],
)
def test_no_secret_is_left(text, shown):
    assert public(text) == shown
    assert "wo" not in public(text)


@pytest.mark.parametrize(
    "text", ["gs://a/part-?.jsonl", "Is it https://a.org? Yes.", "me@a.org", "Unde? = 5"]
)
def test_what_is_no_secret_is_kept(text):
    assert public(text) == text
