"""The Merkle tree of RFC 6962 (SHA-256): one root for a whole log, short proofs about parts of it.

The root of a growing log is kept as its peaks: the roots of the perfect subtrees it consists of, largest first.
Appending touches only these, at most 64 hashes.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
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


def root(leaves: Iterable[bytes]) -> bytes:
    """The root over leaf hashes."""
    peaks: list[bytes] = []
    for size, leaf in enumerate(leaves):
        peaks = grow(peaks, size, leaf)
    return bag(peaks)


def inclusion(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """The hashes that lead from leaf `index` (from 0) to the root, lowest first."""
    if len(leaves) == 1:
        return []
    half = _split(len(leaves))
    if index < half:
        return [*inclusion(index, leaves[:half]), root(leaves[half:])]
    return [*inclusion(index - half, leaves[half:]), root(leaves[:half])]


def included(leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected: bytes) -> bool:
    """Whether the proof shows `leaf` at `index` in the log of `size` entries with the root `expected`."""
    path = list(proof)

    def above(index: int, size: int) -> bytes:
        if size == 1:
            return leaf
        half, other = _split(size), path.pop()
        if index < half:
            return node_hash(above(index, half), other)
        return node_hash(other, above(index - half, size - half))

    return 0 <= index < size and _shown(lambda: above(index, size) == expected and not path)


def consistency(old: int, leaves: Sequence[bytes], *, whole: bool = True) -> list[bytes]:
    """The hashes that show that the first `old` entries (0 < old <= size) are still the same ones; `whole` where
    whoever checks has the root over exactly these."""
    if old == len(leaves):
        return [] if whole else [root(leaves)]
    half = _split(len(leaves))
    if old <= half:
        return [*consistency(old, leaves[:half], whole=whole), root(leaves[half:])]
    return [*consistency(old - half, leaves[half:], whole=False), root(leaves[:half])]


def consistent(old: int, size: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes) -> bool:
    """Whether the proof shows that the log of `size` entries begins with the log of `old` entries."""
    path = list(proof)

    def above(old: int, size: int, *, whole: bool) -> tuple[bytes, bytes]:
        """The roots of the old entries and of all, of one subtree."""
        if old == size:
            known = old_root if whole else path.pop()
            return known, known
        half, other = _split(size), path.pop()
        if old <= half:
            before, after = above(old, half, whole=whole)
            return before, node_hash(after, other)
        before, after = above(old - half, size - half, whole=False)
        return node_hash(other, before), node_hash(other, after)

    return 0 < old <= size and _shown(lambda: above(old, size, whole=True) == (old_root, new_root) and not path)


def _shown(check: Callable[[], bool]) -> bool:
    """What a proof shows; one that is too short shows nothing."""
    try:
        return check()
    except IndexError:
        return False


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)
