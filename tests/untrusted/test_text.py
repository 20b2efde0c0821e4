"""Text of unknown origin made safe to store, compare and print."""

from hypothesis import given
from hypothesis import strategies as st

from waza.untrusted.text import clipped, fold_case, last_lines, seconds, visible, well_formed, without_controls

ANY_TEXT = st.text(st.characters(exclude_categories=[]))


@given(ANY_TEXT)
def test_any_text_can_be_encoded_once_it_is_well_formed(text):
    fixed = well_formed(text)
    fixed.encode()
    assert well_formed(fixed) == fixed


def test_a_surrogate_pair_is_one_character_and_a_lone_surrogate_is_replaced():
    assert well_formed("\ud83d\ude00 \ud83d") == "😀 \ufffd"


@given(ANY_TEXT)
def test_folding_keeps_the_length_and_is_idempotent(text):
    folded = fold_case(text)
    assert len(folded) == len(text)
    assert fold_case(folded) == folded


def test_both_small_sigmas_are_equal_wherever_they_are():
    assert fold_case("ΟΔΟΣ") == fold_case("οδος") == "οδοσ"


@given(ANY_TEXT)
def test_visible_text_has_no_characters_that_a_terminal_obeys(text):
    shown = visible(text)
    shown.encode()
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in shown)


def test_controls_are_shown_by_one_function_and_removed_by_the_other():
    text = "a\x1b[31mred\x1b[0m\u202e\r\nb\tc"
    assert visible(text, lines=True) == "a\\e[31mred\\e[0m\\u202e\\r\nb\tc"
    assert without_controls(text) == "ared\nb\tc"


def test_the_end_of_an_output_is_bounded_in_lines_and_characters():
    assert last_lines("1\n2\n3\n\n", lines=2) == "2\n3"
    assert last_lines("x" * 50, chars=10) == "x" * 10


def test_durations_and_cuts_for_people():
    assert [seconds(ms) for ms in (None, 12.3, 1_250, 61_000)] == ["–", "12 ms", "1.2 s", "1 min 1 s"]
    assert clipped("abcdef", 4) == "abc…"
