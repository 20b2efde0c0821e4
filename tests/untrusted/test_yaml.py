"""The YAML reader: 1.2 values, exact positions, budgets, and a sentence with a place for everything it refuses."""

import json
import math
import pickle
import random
import subprocess
import sys

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from waza.errors import Problem, SpecError
from waza.untrusted import yaml as reader
from waza.untrusted.yaml import Mark, YamlList, YamlMap, mark_of, read_yaml

TASK = """\
# a task as people write it
id: fix-divide
name: "Fix: the divide function"
tags: [math, 'edge case']
inputs:
  prompt: |
    Fix `divide` so that it raises ValueError.

    Keep the tests.
  files:
    - path: calc.py
      content: >-
        def divide(a, b):
        ...
expected:
  output_contains:
    - ValueError
  max_tool_calls: 12
  threshold: 0.75
graders:
  - type: text
    config: {contains: [ok], regex: ~}
"""


# fmt: off
TRAPS = [
    "no", "No", "NO", "yes", "Yes", "on", "On", "off", "OFF", "y", "n", "12:30", "12:30:45", "1:2",
    "2024-01-02", "2024-13-99", "2001-12-14t21:59:43", "=", "1_000", "0b11", "0o8", "0xg", "1.2.3",
    "--", "+", ".", "..", "-.", "e3", "1e", "1e+", ".e1", "tRUE", "nULL", "nan", "inf", "NaN",
    "-inf", ".Nan", "-.nan", "0x", "-0x1", "+0o7", "١٢", "12 apples", "0 1",
]
# fmt: on


def refused(text: str | bytes, file: str = "eval.yaml") -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        read_yaml(text, file)
    assert all(problem.file == file and problem.line and problem.column for problem in caught.value.problems)
    return caught.value.problems


def only(text: str | bytes) -> Problem:
    (problem,) = refused(text)
    return problem


class TestValues:
    def test_a_task_file_is_plain_data(self):
        data = read_yaml(TASK, "task.yaml")
        assert data == yaml.safe_load(TASK)
        assert data["inputs"]["prompt"] == "Fix `divide` so that it raises ValueError.\n\nKeep the tests.\n"
        assert data["inputs"]["files"][0]["content"] == "def divide(a, b): ..."
        assert json.loads(json.dumps(data)) == data

    @pytest.mark.parametrize("text", TRAPS)
    def test_what_yaml_1_1_or_a_lenient_reader_would_turn_into_something_else_stays_text(self, text):
        assert read_yaml(f"key: {text}", "f") == {"key": text}

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            *((text, None) for text in ("", "~", "null", "Null", "NULL")),
            *((text, True) for text in ("true", "True", "TRUE")),
            *((text, False) for text in ("false", "False", "FALSE")),
            ("0", 0),
            ("010", 10),
            ("08", 8),
            ("0o10", 8),
            ("0x1F", 31),
            ("-0", 0),
            ("+12", 12),
            ("-7", -7),
            ("9" * 4300, int("9" * 4300)),
            ("1e3", 1000.0),
            ("5E-1", 0.5),
            ("1.0e+3", 1000.0),
            (".5", 0.5),
            ("1.", 1.0),
            ("-1.5", -1.5),
            ("1e-400", 0.0),
            (".inf", math.inf),
            ("+.INF", math.inf),
            ("-.Inf", -math.inf),
        ],
    )
    def test_plain_words_and_numbers_follow_the_core_schema(self, text, value):
        found = read_yaml(f"key: {text}", "f")["key"]
        assert found == value
        assert type(found) is type(value)

    def test_nan_is_a_float(self):
        assert all(math.isnan(value) for value in read_yaml("[.nan, .NaN, .NAN]", "f"))

    @pytest.mark.parametrize("text", ["'no'", '"12"', "'~'", "'true'", '"1.5"', "'<<'"])
    def test_quoted_text_is_always_text(self, text):
        assert read_yaml(f"{text}: {text}", "f") == {text[1:-1]: text[1:-1]}

    def test_standard_tags_on_scalars_and_collections_are_honoured(self):
        text = "!!map {a: !!str 12, b: !!float 3, c: !!int '3', d: !!bool true, e: !!null '', f: !!seq [1]}"
        data = read_yaml(text, "f")
        assert data == {"a": "12", "b": 3.0, "c": 3, "d": True, "e": None, "f": [1]}
        assert type(data["b"]) is float

    @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
    def test_bytes_with_any_line_ends_and_byte_order_mark_read_the_same(self, newline, bom):
        data = read_yaml(bom + TASK.replace("\n", newline).encode(), "f")
        assert data == yaml.safe_load(TASK)
        assert mark_of(data, ["graders", 0, "config"]) == Mark(22, 5)

    def test_a_text_with_byte_order_mark_reads_the_same(self):
        assert read_yaml("\ufeffa: 1", "f") == {"a": 1}

    def test_every_kind_of_character_survives(self):
        text = "emoji 😀, עברית, العربية, 漢字, e\u0301, \u200f"
        assert read_yaml(f"'{text}': '{text}'".encode(), "f") == {text: text}

    def test_aliases_stand_for_the_value_they_name(self):
        data = read_yaml("a: &x {k: [1]}\nb: *x\nc: &t text\n*t : d\ne: &n 3\nf: *n", "f")
        assert data == {"a": {"k": [1]}, "b": {"k": [1]}, "c": "text", "text": "d", "e": 3, "f": 3}

    @pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "--- # nothing\n...\n"])
    def test_an_empty_file_is_refused_unless_the_caller_allows_it(self, text):
        assert only(text) == Problem("the file is empty; write the keys it should contain", "eval.yaml", 1, 1)
        assert read_yaml(text, "f", may_be_empty=True) is None

    def test_a_written_null_is_no_empty_file(self):
        assert read_yaml("~", "f") is None


class TestPositions:
    def test_keys_and_items_know_their_line_and_column(self):
        data = read_yaml(TASK, "f")
        assert data.mark == Mark(2, 1)
        assert data.marks["tags"] == Mark(4, 1)
        assert data["tags"].mark == Mark(4, 7)
        assert data["tags"].marks == [Mark(4, 8), Mark(4, 14)]
        assert data["graders"][0].marks == {"type": Mark(21, 5), "config": Mark(22, 5)}

    @pytest.mark.parametrize(
        ("path", "mark"),
        [
            ([], (2, 1)),
            (["inputs", "files", 0, "path"], (11, 7)),
            (["inputs", "files", 0], (11, 7)),
            (["inputs", "files", 1], (10, 3)),
            (["inputs", "nowhere", "deeper"], (5, 1)),
            (["graders", 0, "config", "contains", 0], (22, 25)),
            (["graders", 0, "config", "contains", 0, "x"], (22, 25)),
            (["graders", "type"], (20, 1)),
            (["name", 0], (3, 1)),
            ([0], (2, 1)),
        ],
    )
    def test_mark_of_gives_the_deepest_place_that_exists(self, path, mark):
        assert mark_of(read_yaml(TASK, "f"), path) == mark

    def test_mark_of_plain_data_is_the_beginning_of_the_file(self):
        assert mark_of("text", ["a"]) == Mark(1, 1)
        assert mark_of({"a": 1}, ["a"]) == Mark(1, 1)

    def test_columns_count_characters_not_bytes(self):
        assert mark_of(read_yaml("{'äöü😀': 1, key: 2}", "f"), ["key"]) == Mark(1, 13)

    def test_an_alias_item_has_the_place_of_the_alias(self):
        data = read_yaml("a: &x {k: 1}\nb: [*x]", "f")
        assert mark_of(data, ["b", 0]) == Mark(2, 5)
        assert mark_of(data, ["b", 0, "k"]) == Mark(1, 8)

    def test_positions_survive_pickling(self):
        copied = pickle.loads(pickle.dumps(read_yaml(TASK, "f")))
        assert (type(copied), type(copied["tags"])) == (YamlMap, YamlList)
        assert mark_of(copied, ["graders", 0, "config"]) == Mark(22, 5)


class TestRefusals:
    def test_a_duplicate_key_names_both_lines(self):
        problem = only("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
        assert problem[2:4] == (5, 3)
        assert problem.message == "the key 'c' is on line 3 already; keep one of the two"

    def test_differently_written_duplicates_are_found(self):
        assert only("a: 1\n'a': 2\n").line == 2

    def test_all_mistakes_are_told_at_once_even_before_a_syntax_error(self):
        problems = refused("a: 1\na: 2\n1: x\nb: !foo x\n<<: {}\nc: *nope\nd: 1e999\ne: 'open\n")
        assert [problem.line for problem in problems] == [2, 3, 4, 5, 6, 7, 8]

    def test_a_flood_of_mistakes_is_cut(self):
        assert len(refused("a: 1\n" * 5_000)) == reader.MAX_PROBLEMS

    @pytest.mark.parametrize("key", ["1", "true", "1.5", "0x1F"])
    def test_a_key_that_is_not_text_says_to_quote_it(self, key):
        assert only(f"{key}: x").message == f"a key must be text, and {key} is not; write it in quotes: '{key}'"

    def test_a_template_without_quotes_says_to_quote_it(self):
        problem = only("prompt: {{name}}")
        assert problem[2:4] == (1, 10)
        assert "text that begins with '{' needs quotes" in problem.message

    @pytest.mark.parametrize(
        ("text", "place", "part"),
        [
            ("? [a]\n: b", (1, 3), "needs quotes"),
            ("? \n: b", (1, 2), "write a name"),
            ("a: &x {k: 1}\nb:\n  <<: *x\n", (3, 3), "no merge key"),
            ("a: !!python/object/apply:os.system [ls]", (1, 4), "the tag !!python/object/apply:os.system"),
            ("a: !env HOME", (1, 4), "the tag !env"),
            ("a: !!int x", (1, 4), "the tag !!int"),
            ("a: !!set {x}", (1, 4), "the tag !!set"),
            ("a: !!map [x]", (1, 4), "the tag !!map"),
            ("a: 1\n---\nb: 2", (2, 1), "a second document"),
            ("a: *.yaml", (1, 5), "put it in quotes"),
            ("a: *glob", (1, 4), "put *glob in quotes"),
            ("&a [*a]", (1, 5), "*a contains itself"),
            ("a: &a {b: {c: [*a]}}", (1, 16), "*a contains itself"),
            ("a: 1e400", (1, 4), "too large"),
            ("a: " + "1" * 4301, (1, 4), "4,301 digits"),
            ("a: 0x" + "f" * 4000, (1, 4), "4,002 digits"),
            ("%YAML 1.1\n---\na: no", (1, 1), "YAML 1.2"),
            ("%YAML 2.0\n---\na: no", (1, 1), "YAML 1.2"),
            ("%TAG ! tag:x,2000:\n---\na: !b c", (1, 1), "%TAG"),
            ("a: |\n  %TAG\r%TAG x y", (3, 1), "%TAG"),
        ],
    )
    def test_what_yaml_offers_and_this_reader_does_not(self, text, place, part):
        problem = only(text)
        assert problem[2:4] == place
        assert part in problem.message

    @pytest.mark.parametrize(
        ("text", "place", "part"),
        [
            ("a:\n\tb: 1", (2, 1), "a tab is in the indentation; use spaces"),
            ("a: 1\n\tb: 2", (2, 1), "a tab is in the indentation; use spaces"),
            ("a: |\n\tx", (2, 1), "a tab is in the indentation; use spaces"),
            ("prompt: Fix this: now", (1, 17), "put the text in quotes if the colon belongs to it"),
            ("a: 1\n  b: 2", (2, 4), "check the indentation"),
            ("a: 1\nb\nc: 2", (3, 1), "the text on line 2 has no ':'"),
            ("a: [1, 2\nb: 3", (2, 2), "the '[' on line 1 is not closed"),
            ("a: {b: 1\nc: 2", (2, 2), "the '{' on line 1 is not closed"),
            ("a: [1,\n\n", (1, 7), "the file ends before this value is complete"),
            ("a: 1\nb: 'open\nc: 2\n", (2, 4), "the quote that opens here has no end"),
            ('a: "open\n---\nb: 2\n', (1, 4), "the quote that opens here has no end"),
            ("a: 'it's'", (1, 8), "in quotes as a whole"),
            ("a:\n   b: 1\n  c: 2", (3, 3), "the block that begins on line 1; check the indentation"),
            ("- a\nb: 1", (2, 1), "the block that begins on line 1"),
            ("a: @home", (1, 4), "a text cannot begin with '@'; put it in quotes"),
            ("a: `ls`", (1, 4), "a text cannot begin with '`'; put it in quotes"),
            ("a: - b", (1, 4), "a list item '-' cannot begin here"),
            ("a: ? b", (1, 4), "put the text in quotes"),
            ("a: ]", (1, 4), "a value cannot begin like this"),
            (r'a: "\d+"', (1, 5), r"write \\ for a backslash, or use single quotes"),
            (r'a: "\xg"', (1, 7), r"write \\ for a backslash"),
            (r'a: "\ud83d"', (1, 7), "an unknown escape"),
            ("a: | text", (1, 6), "begin it on the next line"),
            ("a: |0\n  x", (1, 5), "must be 1 to 9"),
            ("a: !x!y z", (1, 4), "a text cannot begin with '!'"),
            (" a: 1\nb: 2", (2, 1), "check the indentation"),
            ("%name: x", (1, 6), "a text cannot begin with '&', '*' or '%'"),
        ],
    )
    def test_broken_yaml_is_reported_with_its_place_and_a_next_step(self, text, place, part):
        problem = only(text)
        assert problem[2:4] == place
        assert part in problem.message

    @pytest.mark.parametrize(
        ("raw", "place", "part"),
        [
            ("a: é".encode("latin-1"), (1, 4), "the byte 0xE9 at offset 3 is not UTF-8; save the file as UTF-8"),
            (b"a: 1\r\nb: \xff\r\n", (2, 4), "the byte 0xFF at offset 9"),
            ("ä: é\n".encode() + b"b\xe9", (2, 2), "at offset 8"),
            ("a: 1".encode("utf-16"), (1, 1), "the file is UTF-16; save it as UTF-8"),
            ("a: 1".encode("utf-16-be"), (1, 1), "U+0000"),
            (b"a: 1\nb: \0\n", (2, 4), "the invisible character U+0000 is not allowed"),
            (b"a: \x1b[31m", (1, 4), "U+001B"),
            ("a: 1\nb: '\u2028'", (2, 5), 'write "\\u2028" in double quotes'),
            ("a: \x85", (1, 4), 'write "\\x85" in double quotes'),
            ("a: \ud800", (1, 4), "surrogate"),
        ],
    )
    def test_bytes_that_are_no_text_are_named_with_their_place(self, raw, place, part):
        problem = only(raw)
        assert problem[2:4] == place
        assert part in problem.message

    def test_escapes_for_the_refused_characters_work(self):
        assert read_yaml(r'"\x85\u2028\0\x1b"', "f") == "\x85\u2028\0\x1b"


WITHOUT_LIBYAML = """
import json, sys
sys.modules["yaml._yaml"] = None  # as where PyYAML was built without libyaml
import waza.untrusted.yaml as reader
from waza.errors import SpecError
assert reader._EventParser.__name__ == "BaseLoader"
for text in json.load(sys.stdin):
    try:
        data = reader.read_yaml(text, "f")
        print(json.dumps([data, reader.mark_of(data, ["graders", 0, "config"])]))
    except SpecError as error:
        print(json.dumps([problem[1:4] for problem in error.problems]))
"""


def test_without_libyaml_values_places_and_refusals_are_the_same():
    wrong = [
        "a: 1\na: 2\n1: x\nb: !foo x\n<<: {}\nc: *no\nd: 1e999\ne: 'open\n",
        "a:\n\tb: 1",
        "a: b: c",
        "a: [1\nb: 2",
    ]
    wrong += [
        "",
        "a: \0",
        "a: 1\n---\nb: 2",
        "[" * 5000,
        "&a [*a]",
        "a:\n   b: 1\n  c: 2",
        "a: | x",
        "a: @b",
        "a: *",
        "[1,",
    ]
    run = [sys.executable, "-c", WITHOUT_LIBYAML]
    done = subprocess.run(run, input=json.dumps([TASK, *wrong]), capture_output=True, text=True, timeout=60, check=True)
    first, *others = map(json.loads, done.stdout.splitlines())
    assert first == [yaml.safe_load(TASK), [22, 5]]
    assert others == [[list(problem[1:4]) for problem in refused(text, "f")] for text in wrong]


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


class TestBudgets:
    def test_a_file_may_have_its_full_size_and_no_byte_more(self):
        text = "a: " + "x" * (reader.MAX_BYTES - 3)
        assert len(read_yaml(text, "f")["a"]) == reader.MAX_BYTES - 3
        assert "larger than 5,000,000 bytes" in only(text + "x").message

    @pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
    def test_nesting_ends_at_its_limit(self, opening):
        assert read_yaml(nested(reader.MAX_DEPTH), "f")
        assert "deeper than 64 levels" in only(nested(reader.MAX_DEPTH + 1)).message
        assert "deeper than 64 levels" in only(opening * 100_000).message

    def test_the_number_of_values_ends_at_its_limit(self):
        items = ["x"] * (reader.MAX_NODES - 1)
        assert len(read_yaml(json.dumps(items), "f")) == reader.MAX_NODES - 1
        assert "more than 100,000 values" in only(json.dumps([*items, "x"])).message

    def test_an_alias_bomb_is_refused_before_it_is_expanded(self):
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
        problem = only("\n".join(lines))
        assert "expand to more than 1,000,000 values" in problem.message
        assert problem.line == 7

    def test_a_long_text_repeated_by_aliases_counts_by_its_length(self):
        assert "expand to more than" in only("- &a " + "x" * 1_000_000 + "\n- *a" * 200).message

    def test_a_chain_of_aliases_counts_as_nesting(self):
        lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200)]
        problem = only("\n".join(lines))
        assert "with its aliases the nesting is deeper than 64" in problem.message
        assert problem.line == 64

    def test_many_aliases_of_small_values_are_fine(self):
        data = read_yaml("- &a {k: [1, 2]}\n" + "- *a\n" * 10_000, "f")
        assert data == [{"k": [1, 2]}] * 10_001

    def test_what_kills_pyyamls_c_loader_is_one_sentence_here(self):
        """The proof that the danger is real: the same bytes end another process by a signal."""
        bomb = "'[' * 100_000"
        victim = f"import yaml; yaml.load({bomb}, Loader=yaml.CSafeLoader)"
        died = subprocess.run([sys.executable, "-c", victim], capture_output=True, timeout=60, check=False)
        assert died.returncode not in (0, 1)
        ours = f"from waza.untrusted.yaml import read_yaml; read_yaml({bomb}, 'eval.yaml')"
        told = subprocess.run([sys.executable, "-c", ours], capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == 1
        assert told.stderr.strip().endswith("eval.yaml:1:65: the nesting is deeper than 64 levels; flatten it")

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize(
        "text",
        [
            "".join(f"%TAG !a{number}! b\n" for number in range(200_000)),
            "{a: " * 1_000_000,
            "a: 1\n" * 900_000,
            "'" * 4_900_001,
            '"' + "\\n" * 2_000_000,
            "+" + "1" * 4_900_000 + "x",
            "1" * 4_900_000,
            "---\n" * 1_000_000,
            "&a " * 1_500_000,
            "a:" * 2_400_000,
        ],
        ids=lambda text: f"{text[:8]!r}...",
    )
    def test_large_hostile_files_end_soon(self, text):
        try:
            read_yaml(text, "f")
        except SpecError as error:
            assert error.problems[0].line


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufffe\uffff"))
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


def block_style(tree: object, indent: str = "") -> str:
    """Write a tree as people do: one key or item a line, nested by two spaces."""
    if isinstance(tree, dict) and tree:
        keys = {key: json.dumps(key, ensure_ascii=False) for key in tree}
        return "".join(f"{indent}? {keys[key]}\n{indent}:{_after(tree[key], indent)}" for key in tree)
    if isinstance(tree, list) and tree:
        return "".join(f"{indent}-{_after(item, indent)}" for item in tree)
    return f"{indent}{json.dumps(tree, ensure_ascii=False)}\n"


def _after(tree: object, indent: str) -> str:
    if isinstance(tree, dict | list):
        return "\n" + block_style(tree, indent + "  ")
    return " " + block_style(tree)


class TestProperties:
    @given(trees)
    def test_json_reads_as_itself(self, tree):
        text = json.dumps(tree, ensure_ascii=False, indent=1)
        assert repr(read_yaml(text, "f")) == repr(tree)

    @given(trees)
    def test_block_style_reads_as_what_was_written(self, tree):
        assert repr(read_yaml(block_style(tree), "f")) == repr(tree)

    @given(trees)
    def test_every_key_and_item_stands_where_its_mark_says(self, tree):
        text = json.dumps(tree, ensure_ascii=False, indent=1)
        lines = text.split("\n")
        for path, written in _written(read_yaml(text, "f")):
            line, column = mark_of(read_yaml(text, "f"), path)
            assert lines[line - 1][column - 1 :].startswith(written)

    @given(st.binary(max_size=200) | texts)
    @example(b"\xef\xbb\xbf\xef\xbb\xbf")
    @example(b"'\r\n\r")
    def test_random_bytes_are_read_or_refused_with_a_place(self, garbage):
        _read_or_refused(garbage)

    @given(st.text(alphabet="ab1 \t\n\r-?:,[]{}#&*!|>'\"%@`~<=\\", max_size=60))
    @settings(max_examples=500)
    def test_random_yaml_signs_are_read_or_refused_with_a_place(self, garbage):
        _read_or_refused(garbage)

    @pytest.mark.parametrize("seed", range(4))
    def test_mutated_files_are_read_or_refused_with_a_place(self, seed):
        randomness = random.Random(seed)
        pieces = ["[", "{", "- ", ": ", '"', "'", "\t", "\n", "\r", "&a ", "*a", "!x ", "%", "|", ">", "? ", "\0"]
        for _ in range(1_000):
            raw = bytearray(TASK.encode())
            for _ in range(randomness.randint(1, 4)):
                where = randomness.randrange(len(raw))
                raw[where : where + randomness.choice([0, 0, 1, 9])] = randomness.choice(pieces).encode()
                raw[randomness.randrange(len(raw))] = randomness.choice([raw[0], randomness.randrange(256)])
            _read_or_refused(bytes(raw))


def _written(data: object, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], str]]:
    if isinstance(data, dict):
        here = [((*path, key), json.dumps(key, ensure_ascii=False)) for key in data]
        return here + [pair for key, value in data.items() for pair in _written(value, (*path, key))]
    if isinstance(data, list):
        return [pair for index, value in enumerate(data) for pair in _written(value, (*path, index))]
    return [(path, json.dumps(data, ensure_ascii=False))] if path and isinstance(path[-1], int) else []


def _read_or_refused(content: str | bytes) -> None:
    try:
        read_yaml(content, "f")
    except SpecError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.file == "f"
            assert problem.line >= 1
            assert problem.column >= 1
            assert "while parsing" not in problem.message
