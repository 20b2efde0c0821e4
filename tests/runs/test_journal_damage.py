"""A journal that is cut anywhere or has any bit flipped is never misread, and a format without checksums is."""

import random
from io import BytesIO

import msgspec
import pytest

from campaign import count, size
from results_made import a_result
from waza.errors import StoreError
from waza.model import Result
from waza.runs.journal import Journal, read_journal
from waza.runs.records import pieces, read_record

RECORDS = [
    a_result(f"task {number}", output=text) for number, text in enumerate(["short", "", "ünï – 12345678 {", "x" * 60])
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal.open(path) as journal:
        for record in RECORDS:
            journal.append(record)
    return path


def journal_reader(content):
    """The results our reader finds; bytes are read as a file is, line by line."""
    records = (read_record(piece.payload) for piece in pieces(BytesIO(content)) if piece.payload is not None)
    return [record for record in records if isinstance(record, Result)]


def bare_reader(content):
    """The same file read as JSON lines that decode, without looking at checksums."""
    results = []
    for line in content.split(b"\n"):
        try:
            results.append(msgspec.convert(msgspec.json.decode(line[9:])["result"], Result))
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            continue
    return results


def wrong_reads_of_cuts(read, content, records=RECORDS):
    """How many cuts give anything but the records that lie wholly before the cut."""
    ends = [place + 1 for place, byte in enumerate(content) if byte == 0x0A]
    wrong = 0
    for cut in range(len(content) + 1):
        found = read(content[:cut])
        whole = max(0, sum(end <= cut for end in ends) - 1)
        wrong += found not in (records[:whole], records[: whole + 1])
    if read is journal_reader:
        count("cuts", len(content) + 1)
        count("files misread", wrong)
    return wrong


def wrong_reads_of_flips(read, content, places, records=RECORDS):
    """How many flips give a record that was never written, or cost any but the record that was hit."""
    wrong = 0
    for place, bit in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        found = read(bytes(flipped))
        wrong += any(record not in records for record in found) or len(found) < len(records) - 1
    if read is journal_reader:
        count("bits flipped", len(places))
        count("files misread", wrong)
    return wrong


def every_bit(content):
    return [(place, bit) for place in range(len(content)) for bit in range(8)]


def test_a_cut_at_any_byte_gives_the_records_before_it(path):
    assert wrong_reads_of_cuts(journal_reader, path.read_bytes()) == 0


def test_a_flip_of_some_bits_costs_at_most_the_record_it_hits(path):
    content = path.read_bytes()
    places = random.Random(7).sample(every_bit(content), 3000)
    newlines = [(place, bit) for place, byte in enumerate(content) if byte == 0x0A for bit in range(8)]
    assert wrong_reads_of_flips(journal_reader, content, places + newlines) == 0


def test_the_same_flips_are_misread_without_checksums(path):
    content = path.read_bytes()
    places = random.Random(7).sample(every_bit(content), 3000)
    assert wrong_reads_of_flips(bare_reader, content, places) > 400


@pytest.mark.campaign
def test_no_flip_of_any_bit_and_no_cut_is_misread_in_a_long_journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    records = [a_result(f"task {number}", output=random.Random(number).randbytes(40).hex()) for number in range(40)]
    with Journal.open(path) as journal:
        for record in records:
            journal.append(record)
    content = path.read_bytes()
    assert wrong_reads_of_cuts(journal_reader, content, records) == 0
    places = every_bit(content)
    places = random.Random(3).sample(places, min(len(places), size(10**9, 20_000, 10**9)))
    assert wrong_reads_of_flips(journal_reader, content, places, records) == 0


@pytest.mark.parametrize("cut", [1, 5, 60, 200])
def test_an_unfinished_end_is_cut_off_and_the_run_goes_on(path, cut):
    path.write_bytes(path.read_bytes()[:-cut])
    warnings = read_journal(path)[1]
    assert len(warnings) <= 1
    with Journal.open(path) as journal:
        journal.append(a_result("next"))
    records, warnings = read_journal(path)
    results = [record for record in records if isinstance(record, Result)]
    assert results in ([*RECORDS[:3], a_result("next")], [*RECORDS, a_result("next")])
    assert not [warning for warning in warnings if "unfinished" in warning]


def test_the_unfinished_end_is_told_in_bytes(path):
    path.write_bytes(path.read_bytes() + b"0123abcd {")
    assert "10 bytes of an unfinished record at the end are ignored" in read_journal(path)[1][0]


@pytest.mark.parametrize("place", ["middle of a record", "a newline", "a checksum"])
def test_a_damaged_file_is_kept_and_its_good_records_are_taken_over(path, place):
    content = bytearray(path.read_bytes())
    second = content.index(b"\n", content.index(b"\n") + 1)
    at = {"middle of a record": second + 200, "a newline": second, "a checksum": second + 3}[place]
    content[at] ^= 4
    path.write_bytes(content)
    good = journal_reader(bytes(content))
    assert len(good) >= 3
    with Journal.open(path) as journal:
        assert "damaged" in journal.warnings[0]
        assert journal.results == len(good)
        journal.append(a_result("next"))
    records, warnings = read_journal(path)
    assert [record for record in records if isinstance(record, Result)] == [*good, a_result("next")]
    (kept,) = path.parent.glob("journal.jsonl.damaged-*")
    assert kept.read_bytes() == content
    assert kept.name in warnings[0]
    assert sorted(path.parent.iterdir()) == sorted([path, kept])


def test_two_records_glued_by_a_lost_newline_are_both_saved(path):
    content = path.read_bytes()
    third = [place for place, byte in enumerate(content) if byte == 0x0A][2]
    assert journal_reader(content[:third] + b"J" + content[third + 1 :]) == RECORDS


def test_text_that_looks_like_a_record_is_never_taken_for_one(tmp_path):
    """An agent that writes a record into its answer wins nothing, not even when the line around it is damaged."""
    from waza.runs.records import frame, write_record

    forged = frame(write_record(a_result("forged"))).decode()
    path = tmp_path / "journal.jsonl"
    with Journal.open(path) as journal:
        journal.append(a_result("real", output=f"\n{forged}\n{forged}"))
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            assert all(result.task_id == "real" for result in journal_reader(bytes(flipped)))


def test_a_lock_is_kept_while_a_damaged_journal_is_replaced(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with Journal.open(path), pytest.raises(StoreError, match="another run"):
        Journal.open(path)
