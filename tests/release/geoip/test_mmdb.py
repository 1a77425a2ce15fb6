from __future__ import annotations

from ipaddress import IPv6Address, ip_network
from pathlib import Path

import maxminddb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.release.geoip.mmdb import PrefixTree, UInt, encode

METADATA = {
    "build_epoch": UInt(9, 1_780_000_000),
    "database_type": "Test",
    "languages": ["en"],
    "description": {"en": "d" * 400},
}

prefixes = st.lists(
    st.tuples(st.integers(0, 16), st.integers(0, 2**16 - 1), st.integers(1, 3)), min_size=1, max_size=30
)


def disjoint(drawn: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(start, length, leaf) in ascending order, over 128 bits, differing in bits 16 to 32."""
    chosen: list[tuple[int, int, int]] = []
    after = 0
    cut = [(low >> 16 - length << 16 - length, length, leaf) for length, low, leaf in drawn]
    for start, length, leaf in sorted(cut):
        if start >= after:
            chosen.append(((0x2A00 << 16 | start) << 96, length + 16, leaf))
            after = start + (1 << 16 - length)
    return chosen


@given(prefixes)
def test_written_files_are_read_by_maxminddb(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, int]]
) -> None:
    """Every address finds the record of its prefix, addresses of no prefix find none, in C and Python readers."""
    chosen = disjoint(drawn)
    tree = PrefixTree()
    builder = tree.builder(128)
    for start, length, leaf in chosen:
        builder.add(start, length, leaf)
    records = [{"name": name, "size": 1.5, "long": "x" * 300, "in": {"name": name}} for name in "abc"]
    path = tmp_path_factory.mktemp("mmdb") / "a.mmdb"
    path.write_bytes(encode(tree, builder.root(), records, METADATA))
    for mode in (maxminddb.MODE_MMAP_EXT, maxminddb.MODE_MEMORY):
        with maxminddb.open_database(path, mode) as reader:
            assert reader.metadata().description == METADATA["description"]
            assert reader.metadata().build_epoch == 1_780_000_000
            for start, length, leaf in chosen:
                for address in (start, start + (1 << 128 - length) - 1):
                    record, found = reader.get_with_prefix_len(IPv6Address(address))
                    assert record == records[leaf - 1]
                    assert found <= length
            covered = sum(network.num_addresses for network, _ in reader)
            assert covered == sum(1 << 128 - length for _, length, _ in chosen)


def test_many_records(tmp_path: Path) -> None:
    """Pointers of all lengths are right: strings far into the data are found again."""
    records = [{"name": f"{number:05}" * 60, "again": {"x": f"{number:05}" * 60}} for number in range(4096)]
    tree = PrefixTree()
    builder = tree.builder(128)
    for number in range(4096):
        builder.add((0x2A00 << 16 | number) << 96, 32, number + 1)
    path = tmp_path / "a.mmdb"
    path.write_bytes(encode(tree, builder.root(), records, METADATA))
    with maxminddb.open_database(path) as reader:
        assert [record for _, record in reader] == records
        assert next(iter(reader))[0] == ip_network("2a00::/32")


def test_order_is_held() -> None:
    """Prefixes that overlap or go back are refused."""
    builder = PrefixTree().builder(32)
    builder.add(0x0B000000, 8, 1)
    with pytest.raises(ValueError, match="out of order"):
        builder.add(0x0B010000, 16, 1)


def test_empty_tree(tmp_path: Path) -> None:
    """A database without any prefix is a valid file."""
    tree = PrefixTree()
    path = tmp_path / "a.mmdb"
    path.write_bytes(encode(tree, tree.builder(128).root(), [], METADATA))
    with maxminddb.open_database(path) as reader:
        assert reader.get("2a00::1") is None
