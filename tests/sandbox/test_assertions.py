import json
import os
import random
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from canaries import SECRET, Canaries
from hypothesis import given, settings
from hypothesis import strategies as st

from waza.sandbox.assertions import BUILT_IN_NAMES, CONTEXT_NAMES, check_assertion, evaluate
from waza.sandbox.expressions import MAX_CHARS

HOSTILE = json.loads((Path(__file__).parent.parent / "data" / "hostile" / "assertions.json").read_text())
CONTEXT = HOSTILE["context"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def outcome(source, **context):
    return evaluate([source], CONTEXT | context)[0]


def outcome_or_refusal(source):
    try:
        return outcome(source)
    except ValueError:
        return None


@pytest.fixture
def canaries(tmp_path, monkeypatch):
    monkeypatch.setenv("WAZA_CANARY", SECRET)
    evaluate(["1"], {})
    return Canaries(tmp_path)


@pytest.mark.parametrize("source", HOSTILE["true"])
def test_what_holds_in_python_holds(source):
    check_assertion(source)
    assert outcome(source) == (True, "")


@linux
def test_the_canaries_see_a_real_escape(canaries):
    assert [eval(payload) for payload in canaries.payloads()] == [True] * 5
    (processes, *_) = [found for found in canaries.reached() if found.startswith("processes")]
    os.kill(int(re.findall(r"\d+", processes)[0]), 9)
    os.wait3(os.WNOHANG)
    assert canaries.written.exists()


@linux
def test_the_canaries_see_a_touched_socket(canaries):
    assert canaries.reached() == []
    assert eval(canaries.payloads()[3])
    assert canaries.reached() == ["socket"]


@linux
def test_no_escape_reaches_a_file_a_variable_a_process_or_a_socket(canaries):
    for payload in canaries.payloads():
        assert outcome(payload).ok is False
    for source in HOSTILE["escape"]:
        outcome_or_refusal(source)
    assert canaries.reached() == []


HARMLESS = {"errors.clear() or True", "[output := 'x', output == 'x'][1]"}


@pytest.mark.parametrize("source", [source for source in HOSTILE["escape"] if source not in HARMLESS])
def test_an_escape_is_refused_or_does_not_hold(source):
    ended = outcome_or_refusal(source)
    assert ended is None or ended.ok is False


def test_bombs_end_within_their_limits_and_take_no_memory_of_ours():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = {source: outcome_or_refusal(source) for source in HOSTILE["bomb"]}
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    held = [source for source, ended in ends.items() if ended and ended.ok]
    assert held == ["re.search('(?:a?){40}a{40}', 'a'*40)"], "the one that is true, and not expensive here"
    undecided = [ended.message for ended in ends.values() if ended and ended.ok is None]
    assert len(undecided) >= 10
    assert all(message.startswith(("ran out of time", "ran out of memory")) for message in undecided)
    assert grown_kb < 50_000


@pytest.mark.parametrize("end", ["1 == 1", "output == 'x'", "len(transcript) == 1"])
def test_the_order_of_assertions_never_matters(end):
    sources = [*HOSTILE["true"], *HARMLESS, "transcript.clear()", "outcome.update(n=0) or True", "(output := 'x')", end]
    expected = {source: outcome(source) for source in sources}
    for seed in range(10):
        shuffled = random.Random(seed).sample(sources, len(sources))
        assert dict(zip(shuffled, evaluate(shuffled, CONTEXT), strict=True)) == expected


def test_the_callers_data_is_never_changed():
    context = {"transcript": [1], "outcome": {"n": 1}}
    evaluate(["transcript.clear()", "outcome.clear()"], context)
    assert context == {"transcript": [1], "outcome": {"n": 1}}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "blank"),
        (" \n", "blank"),
        ("# nothing", "comment only"),
        ("output = 1", "column 1: an assignment cannot be checked; did you mean '=='?"),
        ("duration_ms += 5", "did you mean '=='?"),
        ("1; import os", "column 4: only one expression is allowed, no statements"),
        ("import os", "column 1: only one expression"),
        ("del output", "column 1: only one expression"),
        ("assert output", "column 1: only one expression"),
        ("1\n2", "line 2, column 1: only one expression"),
        ("what language is this, anyways?", "column 6: invalid syntax"),
        ("len(output", "column 4: '(' was never closed"),
        ("(await output)", "column 2: 'await' is not allowed"),
        ("lambda: (yield)", "column 10: 'yield' is not allowed"),
        ("'é' + (yield from output)", "column 8: 'yield from' is not allowed"),
        ("[x async for x in output]", "column 14: 'async for' is not allowed"),
        ("any(x for x in [(x := 1)])", "assignment expression cannot be used in a comprehension"),
        ("1" * (MAX_CHARS + 1), "at most 10000 characters"),
        ("-" * 9000 + "1", "nested"),
        ("(" * 5000 + ")" * 5000, "nested"),
        ("output" + ".x" * 4000, "nested"),
        ("[" + "1," * 4000 + "]", "at most 2000 parts"),
        ("'\0'", ""),
        ("'\ud800'", "half characters"),
    ],
)
def test_what_is_not_one_expression_is_refused_with_its_place(source, words):
    with pytest.raises(ValueError) as refusal:
        check_assertion(source)
    assert words in str(refusal.value)


def test_reading_an_assertion_warns_nobody(recwarn):
    check_assertion(r"'\d' in output or output is 'x'")
    assert not recwarn.list


def test_an_expression_may_span_lines_and_end_in_a_comment():
    assert outcome("(1 +\n 1) == 2  # two").ok


@pytest.mark.parametrize(
    ("source", "ok"),
    [
        ("output", True),
        ("[1]", True),
        ("0", False),
        ("''", False),
        ("None", False),
        ("{}", False),
        ("float('nan')", True),
    ],
)
def test_truth_is_pythons(source, ok):
    assert outcome(source) == (ok, "")


def test_a_match_is_true_and_no_match_is_not():
    assert outcome("re.search('def', output)").ok is True
    assert outcome("re.search('nope', output)") == (False, "")


@pytest.mark.parametrize(
    "source",
    [
        "lambda: True",
        "len",
        "str",
        "re",
        "(x for x in output)",
        "not (x for x in [])",
        "bool(x for x in output)",
        "output and (c for c in output)",
        "output.strip",
        "re.search",
    ],
)
def test_what_was_not_called_does_not_hold(source):
    ended = outcome(source)
    assert ended.ok is False
    assert "did you forget to call it?" in ended.message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("ouput == 'x'", "raised NameError: 'ouput' is not known in assertions; did you mean 'output'?"),
        ("true", "did you mean 'True'?"),
        ("print(output)", "'print' is not known"),
        ("1 / 0", "raised ZeroDivisionError"),
        ("outcome['gone']", "raised KeyError"),
        ("output.foo()", "raised AttributeError"),
        ("[x for x in [1]] and x", "raised NameError"),
        ("(lambda f: f(f))(lambda f: f(f))", "raised RecursionError"),
    ],
)
def test_an_assertion_that_raises_does_not_hold_and_says_so(source, words, capfd):
    ended = outcome(source)
    assert ended.ok is False
    assert "the assertion raised" in ended.message
    assert words in ended.message
    assert capfd.readouterr() == ("", "")


def test_every_documented_name_is_there():
    assert evaluate([f"[{name}]" for name in (*CONTEXT_NAMES, *BUILT_IN_NAMES)], CONTEXT) == [(True, "")] * 28


@pytest.mark.parametrize(
    ("source", "ok"),
    [
        ("any(1 / x for x in [1, 0])", True),
        ("all(1 // x > 1 for x in [1, 0])", False),
        ("any(key == 'n' for key, value in outcome.items() if value)", True),
        ("any(a > b for a in [1, 2] if a for b in [0, 1 // (2 - a)] if a)", True),
        ("all(any(b == a for b in [1, 2]) for a in [1, 2])", True),
        ("all(a for a in [])", True),
        ("any((y := x) for x in [0, 3]) and y == 3", True),
        ("any(f'{x}' == '3' for x in outcome.values())", True),
    ],
)
def test_any_and_all_stop_where_python_stops(source, ok):
    assert outcome(source) == (ok, "")


def test_a_pattern_in_an_assertion_that_backtracks_for_ever_is_undecided():
    ended = outcome(r"re.search(r'(a+)+\1$b', 'a' * 40 + 'c')")
    assert ended.ok is None
    assert "ran out of time" in ended.message


def test_half_characters_are_replaced_and_nul_is_kept():
    dirty = {"output": "a\ud800\0", "outcome": {"\udfff": ["\ud83d\ude00"]}}
    sources = ["output == 'a\\ufffd\\x00'", "outcome['\\ufffd'] == ['😀']"]
    assert evaluate(sources, dirty) == [(True, ""), (True, "")]


def test_a_name_without_evidence_makes_undecided_only_what_reads_it():
    missing = {"tool_calls": "nobody looked"}
    sources = ["len(tool_calls) == 0", "'tool_calls' != output", "not [1 for call in tool_calls]"]
    ended = evaluate(sources, CONTEXT, missing)
    assert ended == [(None, "nobody looked"), (True, ""), (None, "nobody looked")]


def test_large_data_is_no_trouble():
    events = [{"type": "tool", "content": "x" * 100, "number": number} for number in range(20_000)]
    big = {"output": "x" * 10_000_000, "transcript": events}
    sources = ["len(output) == 10_000_000", "sum(event['number'] for event in transcript) == 199990000"]
    assert evaluate(sources, big) == [(True, ""), (True, "")]


@linux
def test_a_worker_that_dies_leaves_one_assertion_undecided_and_the_next_ones_run():
    ends = []
    before = Canaries._children()
    evaluate(["1"], {})
    work = threading.Thread(target=lambda: ends.extend(evaluate(["all(x < 10**13 for x in range(10**12))", "1"], {})))
    work.start()
    time.sleep(0.5)
    workers = [pid for pid in Canaries._children() | before if b"monty" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert workers
    for pid in workers:
        os.kill(pid, 9)
    work.join(30)
    assert ends == [(None, "ended its sandbox process"), (True, "")]


def run_script(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)


def test_a_process_that_used_assertions_ends_by_itself_and_says_nothing():
    run = run_script("from waza.sandbox.assertions import evaluate; assert evaluate(['1'], {})[0].ok")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_says_that_it_cannot_tell_instead_of_waiting_for_ever():
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
from waza.sandbox.assertions import evaluate
evaluate(["1"], {})
if (child := os.fork()) == 0:
    os._exit(0 if evaluate(["1"], {})[0].ok is None else 1)
assert os.waitpid(child, 0)[1] == 0
assert evaluate(["1"], {})[0].ok
"""
    run = run_script(script)
    assert (run.returncode, run.stderr) == (0, "")


LEAVES = [
    "0",
    "1",
    "-3",
    "7",
    "0.5",
    "True",
    "None",
    "''",
    "'ab'",
    "'Hello'",
    "output[:9]",
    "outcome['n']",
    "duration_ms",
]
SHAPES = [
    *(f"({{0}} {operator} {{1}})" for operator in ["+", "-", "*", "//", "%", "==", "<", "and", "or", "in"]),
    *(f"{name}({{0}})" for name in ["len", "sum", "sorted", "min", "max", "str", "int", "bool", "abs", "list"]),
    *(
        "[{0}, {1}]",
        "({0}, {1})",
        "sorted(set({0}))",
        "{{'a': {0}}}.get('a')",
        "(not {0})",
        "({0} if {1} else 5)",
        "[*range(5)][{0}]",
    ),
    *(
        "({0}).upper()",
        "({0}).split('l')",
        "({0}).count({1})",
        "(lambda v: f'{{v}}' == str(v))({0})",
        "isinstance({0}, (int, str))",
    ),
    *("[{0} for x in [{1}, 1] if x]", "any(10 // x for x in [{0}, {1}, 0])", "all(10 // x for x in [{0}, {1}, 0])"),
    *("any(x == y for x in [{0}] for y in [1, {1}] if y)", "(lambda x: x or {1})({0})", "((x := {0}), x == {1})"),
]
EXPRESSIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.tuples(st.sampled_from(SHAPES), inner, inner).map(lambda parts: parts[0].format(*parts[1:])),
    max_leaves=6,
)


def by_python(source):
    """Return ("value", v) or ("raised", the error's name) as Python itself says, context in globals."""
    names = {name: getattr(__builtins__, name, None) or __builtins__[name] for name in BUILT_IN_NAMES if name != "re"}
    try:
        return "value", eval(source, {"__builtins__": names, "re": re} | json.loads(json.dumps(CONTEXT)))
    except Exception as error:
        return "raised", type(error).__name__


@settings(max_examples=250, deadline=None)
@given(EXPRESSIONS)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_expressions_come_to_what_python_says(source):
    kind, value = by_python(source)
    if value == "SyntaxError":
        with pytest.raises(ValueError, match="column"):
            check_assertion(source)
    elif kind == "raised":
        ended = outcome(source)
        assert ended.ok is False, source
        assert "the assertion raised" in ended.message, source
    elif len(repr(value)) < 1000:
        expected = repr(value)
        assert outcome(source).ok is bool(value), source
        assert outcome(f"({source}) == {expected}").ok is True, source
        assert outcome(f"({source}) == [{expected}]").ok is False, "a wrong value would be seen"
