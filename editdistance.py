"""The package of this name, for seqio, which ranks names in a message with it.

It has no wheel for Python 3.13 and newer, where installing it needs a C++ compiler.
"""

from rapidfuzz.distance.Levenshtein import distance as eval

__all__ = ["eval"]
