import hashlib

import pytest

from agent_harness.audit import merkle

# The roots over the first n of these entries, as other implementations of RFC 6962 have them.
ENTRIES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [merkle.leaf_hash(bytes.fromhex(entry)) for entry in ENTRIES]
MANY = [merkle.leaf_hash(str(n).encode()) for n in range(40)]


@pytest.mark.parametrize("size", range(9))
def test_roots_are_those_of_the_rfc(size):
    peaks: list[bytes] = []
    for count, leaf in enumerate(LEAVES[:size]):
        peaks = merkle.grow(peaks, count, leaf)
    assert merkle.bag(peaks).hex() == ROOTS[size]


def plain_root(leaves):
    """The definition, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    half = max(1 << k for k in range(len(leaves).bit_length()) if 1 << k < len(leaves))
    return merkle.node_hash(plain_root(leaves[:half]), plain_root(leaves[half:]))


def test_growing_by_peaks_equals_the_definition():
    peaks: list[bytes] = []
    for size, leaf in enumerate(MANY):
        peaks = merkle.grow(peaks, size, leaf)
        assert merkle.bag(peaks) == plain_root(MANY[: size + 1])
        assert len(peaks) == (size + 1).bit_count()
