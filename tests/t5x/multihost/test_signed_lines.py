"""A line is accepted from who knows the secret, for its purpose, once."""

import pytest

from t5x.multihost.signed_lines import is_nonce, new_nonce, printable, read_secret, sign, verify

SECRET = b"s" * 32
NONCES = ("a" * 32, "b" * 32)


@pytest.mark.parametrize("content", [None, 1, "ș\n", [1, {"commit": "abc"}], {"a": [True]}])
@pytest.mark.parametrize("secret", [SECRET, b""])
def test_what_is_signed_is_verified(content, secret):
    line = sign(secret, "report", NONCES, content)
    assert line.count(b"\n") == 1
    assert verify(secret, "report", NONCES, line) == content


@pytest.mark.parametrize(
    "changed",
    [
        (SECRET[1:], "report", NONCES),
        (b"", "report", NONCES),
        (SECRET, "verdict", NONCES),
        (SECRET, "report", NONCES[::-1]),
        (SECRET, "report", (NONCES[0], "c" * 32)),
    ],
)
def test_another_secret_purpose_or_exchange_is_refused(changed):
    line = sign(SECRET, "report", NONCES, [1])
    with pytest.raises(PermissionError):
        verify(*changed, line)


@pytest.mark.parametrize("position", range(0, 68, 3))
def test_a_changed_byte_is_refused(position):
    line = bytearray(sign(SECRET, "report", NONCES, [1]))
    line[position] ^= 1
    with pytest.raises(PermissionError):
        verify(SECRET, "report", NONCES, bytes(line))


def test_a_nonce_is_random_and_known_by_its_form():
    found = {new_nonce() for _ in range(100)}
    assert len(found) == 100
    assert all(map(is_nonce, found))
    assert not any(map(is_nonce, ("", "a" * 31, "a" * 33, "g" * 32, "A" * 32, "a" * 32 + "\n", 1)))


def test_a_secret_is_given_or_in_a_file_of_the_user(tmp_path):
    path = tmp_path / "secret"
    assert read_secret(None, path) == b""
    assert read_secret("x" * 32, path) == b"x" * 32
    path.write_text("y" * 64 + "\n")
    path.chmod(0o600)
    assert read_secret("", path) == b"y" * 64
    assert read_secret("x" * 32, path) == b"x" * 32
    path.chmod(0o640)
    with pytest.raises(ValueError, match=f"can read the pod's secret in {path}: chmod 600"):
        read_secret(None, path)


def test_a_short_secret_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"T5X_POD_SECRET holds 6 characters, .* at least 32"):
        read_secret("secret", tmp_path)
    path = tmp_path / "secret"
    path.write_text("")
    path.chmod(0o600)
    with pytest.raises(ValueError, match="secret holds 0 characters"):
        read_secret(None, path)
    with pytest.raises(ValueError, match=r"cannot be read from .*Is a directory"):
        read_secret(None, tmp_path)


def test_text_for_a_terminal_has_no_control_characters_and_an_end():
    assert printable("a ș €") == "a ș €"
    assert printable("a\x1b[2J\n\x9b\u202e") == "a�[2J���"
    assert printable("x" * 11, 10) == "x" * 10 + "…"
