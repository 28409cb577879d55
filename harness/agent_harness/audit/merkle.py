"""The Merkle tree of RFC 6962 (SHA-256): one root for a whole log.

The root of a growing log is kept as its peaks: the roots of the perfect subtrees it consists of, largest first.
Appending touches only these, at most 64 hashes.
"""

import hashlib
from collections.abc import Sequence
from functools import reduce

EMPTY = hashlib.sha256(b"").digest()
"""The root of a log without entries."""


def leaf_hash(entry: bytes) -> bytes:
    """The hash of one entry. Its prefix differs from a node's, so neither can pass for the other."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def grow(peaks: Sequence[bytes], size: int, leaf: bytes) -> list[bytes]:
    """The peaks after one more leaf; `size` counts the leaves before it."""
    out = [*peaks, leaf]
    while size & 1:  # each full pair of equal height becomes one peak, as carrying does in binary counting
        right, left = out.pop(), out.pop()
        out.append(node_hash(left, right))
        size >>= 1
    return out


def bag(peaks: Sequence[bytes]) -> bytes:
    """The root over the peaks."""
    return reduce(lambda right, left: node_hash(left, right), reversed(peaks)) if peaks else EMPTY
