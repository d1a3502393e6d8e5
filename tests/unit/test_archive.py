"""Compressed tables from the bits up: keys, codes, blocks and files; kernel and NumPy alike, against brute force."""

import struct
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from simhash import native
from simhash.archive.building.sorting import KeyFile, merged
from simhash.archive.format import keys as arrays
from simhash.archive.format.blocks import (
    BlockCode,
    Encoded,
    canonical,
    check,
    code_lengths,
    encode_in_python,
    gap_counts,
)
from simhash.archive.format.table_file import TableFile, TableWriter
from simhash.archive.lookup.ranges import Question, probe
from simhash.errors import BrokenBlock, OrderError, WidthError
from simhash.relation.tables import NAMES, design
from tests.tables import IDENTITY, crowds, first_difference, write_table


def coded(width, values, block_keys):
    """Values in blocks."""
    keys = arrays.from_ints(values, width)
    code = BlockCode(width, block_keys, canonical(code_lengths(gap_counts(keys, width).tolist())))
    return code, code.encode(keys)


def by_hand(width, values, block_keys, code):
    """The blocks as section 3.2 of the paper describes them, a character a bit."""
    blocks = []
    for start in range(0, len(values), block_keys):
        block = values[start : start + block_keys]
        bits = f"{block[0]:0{width}b}"
        for before, after in pairwise(block):
            h = first_difference(before, after, width)
            symbol = width if h is None else h
            bits += f"{code.codes[symbol]:0{code.lengths[symbol]}b}"
            bits += "" if h is None else f"{after:0{width}b}"[h + 1 :]
        bits += "0" * (-len(bits) % 8)
        blocks.append(int(bits, 2).to_bytes(len(bits) // 8))
    return blocks


# Keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [64, 128, 96])
@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_permuted_as_numbers_are(name, bits):
    random = Random(1)
    values = [random.getrandbits(bits) for _ in range(20)]
    keys = arrays.from_ints(values, bits)
    for table in design(name, bits).tables:
        moved = arrays.permuted(keys, table)
        assert arrays.to_ints(moved, bits) == [table.permute(value) for value in values]
        assert arrays.to_ints(arrays.restored(moved, table), bits) == values


@given(crowds(), st.integers(0, 2**32))
def test_arrays_are_sorted_searched_and_compared_as_numbers_are(crowd, seed):
    width, values = crowd
    random = Random(seed)
    shuffled = random.sample(values, len(values))
    ordered = arrays.in_order(arrays.from_ints(shuffled, width))
    assert arrays.to_ints(ordered, width) == values
    wanted = [*values, 0, random.getrandbits(width)]
    for after in (False, True):
        found = arrays.bound(ordered, arrays.from_ints(wanted, width), after)
        assert found.tolist() == [sum(v < w or (after and v == w) for v in values) for w in wanted]


def test_a_fingerprint_that_is_too_wide_is_refused():
    with pytest.raises(WidthError):
        arrays.from_ints([1 << 64], 64)
    with pytest.raises(WidthError):
        arrays.from_ints([-1], 64)


@given(crowds(), st.integers(1, 32))
def test_numbers_go_in_front_of_keys_and_off_again(crowd, front):
    width, values = crowd
    keys = arrays.from_ints(values, width)
    numbers = [value & ((1 << front) - 1) for value in values]
    both = arrays.joined(np.array(numbers, np.uint64), front, keys, width)
    assert arrays.to_ints(both, front + width) == [n << width | v for n, v in zip(numbers, values, strict=True)]
    assert arrays.to_ints(arrays.without_front(both, front, front + width), width) == values


# Codes -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.just(0), st.integers(1, 2**40)), min_size=1, max_size=80))
def test_a_code_is_complete_bounded_and_no_longer_than_it_must(counts):
    lengths = code_lengths(counts)
    used = [length for length in lengths if length]
    assert [bool(length) for length in lengths] == [bool(count) for count in counts]
    assert max(used, default=0) <= 12
    if len(used) > 1:
        assert sum(2**-length for length in used) == 1
    frequent = sorted(zip(counts, lengths, strict=True), reverse=True)
    assert all(a[1] <= b[1] for a, b in pairwise(pair for pair in frequent if pair[0]) if a[0] > b[0])


@pytest.mark.parametrize("counts", [[5, 2, 1, 0], [1, 1, 2, 3, 5, 8, 13], [10, 10, 10, 10, 1]])
def test_where_the_bound_does_not_bind_a_code_is_huffmans(counts):
    weights = [(count, 0) for count in counts if count]
    total = 0
    while len(weights) > 1:
        weights.sort()
        total += weights[0][0] + weights[1][0]
        weights = [*weights[2:], (weights[0][0] + weights[1][0], 0)]
    assert sum(count * length for count, length in zip(counts, code_lengths(counts), strict=True)) == total


def test_the_example_of_the_docstring():
    assert code_lengths([5, 2, 1, 0]) == (1, 2, 2, 0)
    assert canonical((1, 2, 2, 0)).codes == (0b0, 0b10, 0b11, 0)


@pytest.mark.parametrize("lengths", [[1, 1, 1], [13], [2, 1, 1]])
def test_lengths_that_no_code_has_are_refused(lengths):
    with pytest.raises(ValueError, match="no code has the lengths"):
        canonical(lengths)


# Blocks ------------------------------------------------------------------------------------------------------------


@given(crowds(), st.integers(1, 9))
def test_blocks_are_the_papers_and_come_back(crowd, block_keys):
    width, values = crowd
    for kernel in (native.blocks, lambda: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "blocks", kernel)
            code, blocks = coded(width, values, block_keys)
            expected = by_hand(width, values, block_keys, code.code)
            assert blocks.data == b"".join(expected)
            assert blocks.sizes.tolist() == list(map(len, expected))
            assert arrays.to_ints(code.decode(blocks, len(values)), width) == values


def test_first_differences_are_those_of_numbers():
    keys = arrays.from_ints([0b11011001, 0b11011011, 0b11011011], 8)
    assert arrays.first_differences(keys, 8).tolist() == [6, 8]
    assert gap_counts(keys, 8).tolist() == [0, 0, 0, 0, 0, 0, 1, 0, 1]


@pytest.mark.parametrize("width", [64, 128])
def test_descending_keys_are_refused(path_taken, width):
    code, _ = coded(width, [1, 2, 3, 3, 9], 2)
    for values in ([2, 1], [1, 2, 1], [1, 2, 3, 2], [1 << (width - 1), 1]):
        with pytest.raises(OrderError, match="smaller than the one before"):
            code.encode(arrays.from_ints(values, width))
        with pytest.raises(OrderError, match="smaller than the one before"):
            gap_counts(arrays.from_ints(values, width), width)


def test_keys_of_another_distribution_are_refused(path_taken):
    code, _ = coded(64, [1, 2, 3], 8)
    with pytest.raises(OrderError, match="made for other keys"):
        code.encode(arrays.from_ints([1, 1], 64))


def test_a_writer_refuses_what_is_smaller_than_what_it_has(path_taken, tmp_path):
    writer = TableWriter(tmp_path / "t", IDENTITY, 64, 3, [1] * 65, 2)
    writer.add(arrays.from_ints([5, 6], 64))
    with pytest.raises(OrderError, match="smaller than those before"):
        writer.add(arrays.from_ints([4], 64))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=40)
@given(crowds((8, 64, 96)), st.data())
def test_a_block_that_passes_its_check_and_is_none_is_refused_alike(crowd, data):
    """Nobody writes such a block; whoever makes one must get the same error from both, or the same keys."""
    width, values = crowd
    if not values:
        return
    code, blocks = coded(width, values, 4)
    broken = bytearray(blocks.data)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] ^= data.draw(st.integers(1, 255))
    ends = np.cumsum(blocks.sizes).tolist()
    checks = [check(bytes(broken[a:b])) for a, b in pairwise([0, *ends])]
    outcomes = []
    for kernel in (native.blocks, lambda: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "blocks", kernel)
            reader = BlockCode(width, 4, code.code)
            try:
                found = reader.decode(Encoded(bytes(broken), blocks.sizes, np.array(checks, np.uint32)), len(values))
                outcomes.append(arrays.to_ints(found, width))
            except BrokenBlock as error:
                outcomes.append(error.reason)
    assert outcomes[0] == outcomes[1]


# Files -------------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(crowds(), st.integers(1, 9))
def test_a_file_gives_back_its_keys_and_any_range_of_them(tmp_path_factory, crowd, block_keys):
    width, values = crowd
    path = write_table(tmp_path_factory.mktemp("t") / "t", width, values, block_keys)
    table = TableFile(path, IDENTITY)
    assert len(table) == len(values)
    assert [key for chunk in table.chunks() for key in arrays.to_ints(chunk, width)] == values
    for value, prefix in [(0, 0), *((value, prefix) for value in values[::5] for prefix in (1, width // 2, width))]:
        question = Question(table, arrays.from_ints([value], width), prefix, 0)
        found = arrays.to_ints(probe([question], width, 1)[0].keys, width)
        assert set(found) == {key for key in values if key >> width - prefix == value >> width - prefix}


def read_by_the_document(data):
    """The keys of a file, by docs/compressed-tables.md alone."""
    magic, version, kind, width, per_block, items, start, size = struct.unpack_from("<8sIIIIQQQ", data)
    identity, extra = struct.unpack_from("<16sI", data, 48)
    assert (magic, version, kind, size, identity) == (b"SDTABLE\n", 1, 1, len(data), IDENTITY)
    lengths = data[68 : 68 + extra]
    at = -(-(68 + extra) // 8) * 8
    assert struct.unpack_from("<Q", data, at) == (xxhash.xxh3_64_intdigest(data[:at]),)
    index, words, blocks = at + 8, -(-width // 64), -(-items // per_block)
    lasts = struct.unpack_from(f"<{blocks * words}Q", data, index)
    ends = struct.unpack_from(f"<{blocks}Q", data, index + 8 * blocks * words)
    checks = struct.unpack_from(f"<{blocks}I", data, index + 8 * blocks * words + 8 * blocks)
    assert struct.unpack_from("<Q", data, start - 8) == (xxhash.xxh3_64_intdigest(data[index : start - 8]),)
    codes, code, before = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        code, before = code << (length - before), length
        codes[f"{code:0{length}b}"] = symbol
        code += 1
    keys = []
    for block, (a, b) in enumerate(pairwise([0, *ends])):
        raw = data[start + a : start + b]
        assert checks[block] == xxhash.xxh3_64_intdigest(raw) & 0xFFFFFFFF
        bits = f"{int.from_bytes(raw):0{8 * len(raw)}b}"
        key, at = bits[:width], width
        keys.append(int(key, 2))
        for _ in range(min(per_block, items - block * per_block) - 1):
            length = next(n for n in range(1, 13) if bits[at : at + n] in codes)
            h = codes[bits[at : at + length]]
            at += length
            if h < width:
                key = key[:h] + "1" + bits[at : at + width - 1 - h]
                at += width - 1 - h
            keys.append(int(key, 2))
        last = sum(word << (64 * i) for i, word in enumerate(reversed(lasts[block * words : (block + 1) * words])))
        assert keys[-1] == last >> (64 * words - width)
    return keys


@settings(max_examples=30)
@given(crowds(), st.integers(1, 9))
def test_a_file_is_what_the_document_says(tmp_path_factory, crowd, block_keys):
    width, values = crowd
    path = write_table(tmp_path_factory.mktemp("t") / "t", width, values, block_keys)
    assert read_by_the_document(path.read_bytes()) == values


# Sorting -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(crowds((96,)), max_size=5), st.integers(1, 20))
def test_merged_runs_are_all_keys_in_order(tmp_path_factory, crowds_, buffer_keys):
    folder = tmp_path_factory.mktemp("runs")
    runs = []
    for number, (width, values) in enumerate(crowds_):
        runs.append(KeyFile(folder / str(number), 2))
        runs[-1].write([arrays.from_ints(values, width)])
    found = [key for keys in merged(runs, buffer_keys) for key in arrays.to_ints(keys, 96)]
    assert found == sorted(value for _, values in crowds_ for value in values)


def test_merging_holds_no_more_than_it_may(tmp_path):
    runs = []
    for number in range(4):
        runs.append(KeyFile(Path(tmp_path) / str(number), 1))
        runs[-1].write([arrays.from_ints([number] * 10 + [7] * 1000, 64)])
    assert max(map(len, merged(runs, 80))) <= 80


def test_python_encodes_any_number_of_keys_at_once():
    keys = arrays.in_order(np.random.default_rng(1).integers(0, 2**64, (5000, 1), np.uint64))
    code = BlockCode(64, 512, canonical(code_lengths(gap_counts(keys, 64).tolist())))
    assert encode_in_python(code, keys).data == code.encode(keys).data
