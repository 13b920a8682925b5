"""Sequences of an encoder: sentences of a document, alone or in pairs, with special tokens.

    documents = Documents(ids, sentences, lengths)
    spans = single_spans(documents, room=126, short=0.1, rng=rng)   # begins and ends
    lay_out(documents.ids, spans, cls=2, sep=3)                     # [CLS] text [SEP]

A sequence has as many complete sentences as fit, all of one document; the second text of a pair may
be of another. A sentence that is too long is cut.
"""

import bisect
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# (begin and end of the first text, begin and end of the second, 1 if the second is random)
Span = tuple[int, int, int, int, int]


class Documents(NamedTuple):
    """Documents end to end.

    Attributes:
      ids: int32 [T].
      sentences: int [S], the number of tokens in each sentence.
      lengths: int [D], the number of sentences in each document.
    """

    ids: np.ndarray
    sentences: np.ndarray
    lengths: np.ndarray

    def borders(self) -> list[list[int]]:
        """Return where each document begins and its sentences end, as places in `ids`."""
        ends = np.append(0, np.cumsum(self.sentences)).tolist()
        last = np.append(0, np.cumsum(self.lengths)).tolist()
        return [ends[a : b + 1] for a, b in itertools.pairwise(last)]


def single_spans(
    documents: Documents, room: int, short: float, rng: np.random.Generator
) -> list[Span]:
    """Return sequences of one text each, which together have all of the text.

    Args:
      documents: the texts.
      room: the most tokens of text.
      short: the share of sequences that get a random limit of 2 to `room` tokens; the next sequence
        continues after it.
      rng: the source of all draws.
    """
    spans: list[Span] = []
    for borders in documents.borders():
        begin, last = borders[0], borders[-1]
        while begin < last:
            limit = _limit(room, short, rng)
            end = borders[bisect.bisect_right(borders, begin + limit) - 1]
            if end <= begin:  # not one sentence fits
                following = borders[bisect.bisect_right(borders, begin)]
                end = min(following, begin + room)
            spans.append((begin, end, end, end, 0))
            begin = end
    return spans


def free_spans(
    documents: Documents, room: int, short: float, rng: np.random.Generator
) -> list[Span]:
    """Return `single_spans` that may end within a sentence."""
    spans: list[Span] = []
    for borders in documents.borders():
        begin = borders[0]
        while begin < borders[-1]:
            end = min(begin + _limit(room, short, rng), borders[-1])
            spans.append((begin, end, end, end, 0))
            begin = end
    return spans


def _limit(room: int, short: float, rng: np.random.Generator) -> int:
    if short and rng.random() < short:
        return int(rng.integers(min(2, room), room, endpoint=True))
    return room


def pair_spans(
    documents: Documents, room: int, short: float, rng: np.random.Generator
) -> list[Span]:
    """Return sequences of two texts each: half of the second continue the first.

    As BERT makes them (arXiv:1810.04805, appendix A.2): consecutive sentences that fill `room`
    tokens are cut in two between sentences; or the second part is replaced by sentences of another
    of the `documents`, and comes again later. A single sentence is always followed by another
    document's, and left out if there is none. Pairs that are too long lose tokens at either end of
    the longer text.
    """
    borders = [_split_long(document, room) for document in documents.borders()]
    filled = [number for number, document in enumerate(borders) if len(document) > 1]
    return [
        span
        for place in range(len(filled))
        for span in _pairs_of(borders, filled, place, (room, short), rng)
    ]


def _pairs_of(
    borders: list[list[int]],
    filled: list[int],
    place: int,
    lengths: tuple[int, float],
    rng: np.random.Generator,
) -> Iterator[Span]:
    """Yield the pairs whose first text is from the document `filled[place]`."""
    document, (room, short) = borders[filled[place]], lengths
    at, last = 0, len(document) - 1
    while at < last:
        limit = _limit(room, short, rng)
        end = min(bisect.bisect_left(document, document[at] + limit), last)
        middle = at + 1 if end - at < 2 else int(rng.integers(at + 1, end))
        alone = middle == end
        if (alone or rng.random() < 0.5) and len(filled) > 1:
            other = int(rng.integers(len(filled) - 1))
            stranger = borders[filled[other + (other >= place)]]
            start = int(rng.integers(len(stranger) - 1))
            rest = max(limit - (document[middle] - document[at]), 1)
            stop = bisect.bisect_left(stranger, stranger[start] + rest)
            stop = min(stop, len(stranger) - 1)
            second, label, following = (stranger[start], stranger[stop]), 1, middle
        elif alone:
            return  # the last sentence of the only document
        else:
            second, label, following = (document[middle], document[end]), 0, end
        yield *_shorten((document[at], document[middle]), second, room, rng), label
        at = following


def _shorten(
    first: tuple[int, int], second: tuple[int, int], room: int, rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Return both texts, cut to `room` tokens together by dropping tokens of the longer."""
    sizes = [first[1] - first[0], second[1] - second[0]]
    if (excess := sum(sizes) - room) <= 0:
        return *first, *second
    longer = int(sizes[1] >= sizes[0])
    num_cut = [0, 0]
    num_cut[longer] = min(excess, abs(sizes[0] - sizes[1]))
    rest = excess - num_cut[longer]
    num_cut[0] += rest // 2
    num_cut[1] += rest - rest // 2
    fronts = [int(rng.binomial(n, 0.5)) if n else 0 for n in num_cut]
    return (
        *(first[0] + fronts[0], first[1] - (num_cut[0] - fronts[0])),
        *(second[0] + fronts[1], second[1] - (num_cut[1] - fronts[1])),
    )


def _split_long(borders: list[int], room: int) -> list[int]:
    """Return the borders, with others inside sentences of more than `room` tokens."""
    places = borders[:1]
    for end in borders[1:]:
        places += [*range(places[-1] + room, end, room), end]
    return places


class LaidOut(NamedTuple):
    """Sequences end to end, with special tokens.

    Attributes:
      tokens: int32 [T].
      types: int32 [T], 1 for the second text of a pair and the [SEP] after it, else 0.
      lengths: int64 [n], of each sequence.
    """

    tokens: np.ndarray
    types: np.ndarray
    lengths: np.ndarray


def lay_out(ids: np.ndarray, spans: list[Span], cls: int, sep: int) -> LaidOut:
    """Return [CLS] text [SEP] or, where there is a second text, [CLS] text [SEP] text [SEP]."""
    rows = np.array(spans, np.int64).reshape([-1, 5])
    first, second, n = rows[:, 0:2], rows[:, 2:4], len(rows)
    source = np.concatenate([ids, np.array([cls, sep], ids.dtype)])
    cls_place, sep_place = (np.full(n, len(ids) + i) for i in (0, 1))
    single, has_second = np.ones(n, np.int64), (second[:, 1] > second[:, 0]).astype(np.int64)
    starts = np.stack([cls_place, first[:, 0], sep_place, second[:, 0], sep_place], 1)
    sizes = [single, first[:, 1] - first[:, 0], single, second[:, 1] - second[:, 0], has_second]
    lengths = np.stack(sizes, 1)
    flat = lengths.ravel()
    places = np.repeat(starts.ravel() - (np.cumsum(flat) - flat), flat) + np.arange(flat.sum())
    types = np.repeat(np.tile(np.array([0, 0, 0, 1, 1], np.int32), n), flat)
    return LaidOut(source[places], types, lengths.sum(1))
