"""Output of a program: bounded, head and tail kept, and no byte can make the decoding fail."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from waza.process.worker_pool import Capture, Captured


def captured(chunks: list[bytes], limit: int | None) -> Captured:
    capture = Capture(limit)
    for chunk in chunks:
        capture.add(chunk)
    return capture.finish()


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(raw), *(place % (len(raw) + 1) for place in places)})
    return [raw[a:b] for a, b in pairwise(edges)]


@given(st.binary(max_size=300), st.lists(st.integers(0, 1000), max_size=8))
def test_any_bytes_in_any_chunks_decode_as_they_would_in_one_piece(raw, places):
    whole = captured(cut(raw, places), None)
    assert whole.text == raw.decode(errors="replace")
    assert whole.lossy == (whole.text.encode() != raw)
    assert (whole.total_bytes, whole.omitted_bytes) == (len(raw), 0)


@given(st.text(max_size=200), st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 100))
def test_the_cut_itself_never_damages_a_character(text, places, limit):
    text = text.encode(errors="replace").decode()
    kept = captured(cut(text.encode(), places), limit)
    assert not kept.lossy
    assert text.startswith(kept.head)
    assert text.endswith(kept.tail)
    assert len((kept.head + kept.tail).encode()) + kept.omitted_bytes == kept.total_bytes == len(text.encode())


@given(st.binary(max_size=300), st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 100))
def test_no_more_than_the_limit_is_kept_and_the_rest_is_counted(raw, places, limit):
    kept = captured(cut(raw, places), limit)
    assert kept.total_bytes == len(raw)
    assert limit >= kept.total_bytes - kept.omitted_bytes >= min(limit, len(raw)) - 6
    assert (f"{kept.omitted_bytes} bytes omitted" in kept.text) == (kept.omitted_bytes > 0)


def test_head_and_tail_are_those_of_the_stream():
    kept = captured([b"%04d " % number for number in range(2000)], 100)
    assert kept.head.startswith("0000 0001 ")
    assert kept.tail.endswith("1998 1999 ")
    assert kept.text == f"{kept.head}\n… 9900 bytes omitted …\n{kept.tail}"


def test_what_fits_is_kept_whole_and_without_a_marker():
    assert captured([b"ab", b"cd"], 4) == Captured("abcd", "", 4, 0, False)
    assert captured([], 4).text == ""


def test_nul_and_utf16_are_text_like_any_other():
    assert captured([b"a\0b"], 10) == Captured("a\0b", "", 3, 0, False)
    assert captured(["ü".encode("utf-16")], 10).lossy
