"""Compressed data are read to their end, or an error is raised: never a part of them in silence."""

import bz2
import gzip
import io
import lzma

import pytest
import zstandard

from tasks.corpus.storage.decompress import decompressed

TEXT = b"".join(b"randul %d\n" % i for i in range(20_000))
SKIPPABLE = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"abcde"
COMPRESS = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}


def read(data, compression):
    with decompressed(io.BytesIO(data), compression) as stream:
        return stream.read()


@pytest.mark.parametrize("kind", COMPRESS)
def test_all_frames_are_read(kind):
    parts = [COMPRESS[kind](part) for part in (TEXT[:7], b"", TEXT[7:150_000], TEXT[150_000:])]
    assert read(b"".join(parts), kind) == TEXT
    assert read(COMPRESS[kind](b""), kind) == b""


def test_frames_may_be_padded_or_skipped():
    assert read(gzip.compress(b"a") + bytes(9) + gzip.compress(b"b") + bytes(99_999), "gz") == b"ab"
    assert read(lzma.compress(b"a") + bytes(8) + lzma.compress(b"b") + bytes(4), "xz") == b"ab"
    a, b = zstandard.compress(b"a"), zstandard.compress(b"b")
    assert read(SKIPPABLE + a + SKIPPABLE + b + SKIPPABLE, "zst") == b"ab"


def test_frames_of_unknown_length_are_read():
    writer = zstandard.ZstdCompressor().compressobj()  # as of a pipe
    assert read(writer.compress(TEXT) + writer.flush(), "zst") == TEXT


@pytest.mark.parametrize("kind", COMPRESS)
@pytest.mark.parametrize("frames", [1, 2])
def test_every_cut_is_noticed(kind, frames):
    data = COMPRESS[kind](b"un text " * 9)
    complete = (frames - 1) * data
    for n in range(0 if frames == 1 else 1, len(data)):
        with pytest.raises(EOFError, match=f"its {kind} data have no end"):
            read(complete + data[:n], kind)
    large = complete + COMPRESS[kind](TEXT)
    for n in range(len(complete) + 1, len(large), 997):
        with pytest.raises(EOFError):
            read(large[:n], kind)


@pytest.mark.parametrize("log", [27, 28, 31])
def test_a_long_window_is_read(log):
    parameters = zstandard.ZstdCompressionParameters(window_log=log)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = writer.compress(TEXT) + writer.flush()
    assert zstandard.get_frame_parameters(data).window_size == 1 << log
    assert read(data, "zst") == TEXT
