import json
import os
import random
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from canaries import SECRET, Canaries
from python_expressions import accepted, by_cpython, differences, expressions

from campaign import count, size
from waza.untrusted.python_assertions import check_assertion, evaluate
from waza.untrusted.python_expressions import BUILT_IN_NAMES, CONTEXT_NAMES

HOSTILE = json.loads((Path(__file__).parent.parent / "data" / "hostile" / "assertions.json").read_text())
CONTEXT = HOSTILE["context"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def outcome(source, **context):
    return evaluate([source], CONTEXT | context)[0]


def outcome_or_refusal(source):
    return outcome(source) if accepted(source) else None


@pytest.fixture
def canaries(tmp_path, monkeypatch):
    monkeypatch.setenv("WAZA_CANARY", SECRET)
    evaluate(["1 == 1"], {})
    return Canaries(tmp_path)


@pytest.mark.parametrize("source", HOSTILE["true"])
def test_what_is_true_in_python_passes(source):
    check_assertion(source)
    assert outcome(source) == (True, "")


@linux
def test_the_canaries_notice_a_real_escape(canaries):
    assert [eval(payload) for payload in canaries.payloads()] == [True] * 5
    (processes, *_) = [found for found in canaries.reached() if found.startswith("processes")]
    os.kill(int(re.findall(r"\d+", processes)[0]), 9)
    os.wait3(os.WNOHANG)
    assert canaries.written.exists()


@linux
def test_the_canaries_notice_a_touched_socket(canaries):
    assert canaries.reached() == []
    assert eval(canaries.payloads()[3])
    assert canaries.reached() == ["socket"]


@linux
def test_no_escape_reaches_a_file_a_variable_a_process_or_a_socket(canaries):
    attempts = [*canaries.payloads(), *HOSTILE["escape"], *ESCAPES]
    ends = [outcome_or_refusal(source) for source in attempts]
    passed = [s for s, ended in zip(attempts, ends, strict=True) if ended and ended.ok and s not in HARMLESS]
    reached = canaries.reached()
    count("escape attempts", len(attempts))
    count("contacts with anything outside", len(passed) + len(reached))
    assert (passed, reached) == ([], [])


BOMBS = [
    "re.search(r'(a+)+\\1$b', 'a' * 40 + 'c')",
    "f'{1:>10000000000}'",
    "'{:>{}}'.format(output, 10**10)",
    "'%*d' % (10**9, len(output))",
    "'x'.join(['y' * 10**6] * 10**5)",
    "('a' * 10**6).replace('a', 'b' * 10**6)",
    "list(range(10**9))[0]",
    "sum(range(10**12))",
    "[*range(10**9)] == 1",
    "(lambda f: f(f, 'x'))(lambda f, s: f(f, s + s))",
    "len(output) ** 10**9 % 7",
    "(1 << 10**9) * (1 << 10**9) == 1",
    "len(output) << 10**11",
    "sorted([0] * 10**9)",
    "output.zfill(10**11)",
    "b'x'.ljust(10**11)",
    "int('9' * 4000) ** 10**6",
    "[[x] * 10**5 for x in range(10**6)]",
    "'a'.translate({97: 'b' * 10**9}) == 1",
    "max(x for x in range(10**12))",
]
HARMLESS = {"[output := 'x', output == 'x'][1]"}
ESCAPES = [
    "'{0.__class__.__mro__[1].__subclasses__}'.format(output)",
    "('{0.__cl' + 'ass__}').format(output)",
    "str.format(*['{0.__class__}', output])",
    "(lambda f: f.format(output))('{0.__class__}')",
    "('{:{0.__' + 'class__}}').format(output)",
    "[s.format(re) for s in ['{0.en' + 'um.sys.modules}']]",
    "[str.format, 1][0]('{0.__class__}', 1)",
    "sorted([1], key=str.format)",
    "'{0.gi_frame.f_globals}'.format(x for x in output)",
    "(x for x in output).gi_frame.f_builtins",
    "[x.gi_frame for x in [(y for y in output)]][0].f_back",
    "(lambda x=().__class__: x)()",
    "(lambda *a, **k: a[0].__class__)(1)",
    "(__builtins__ := {'a': 1})",
    "[1 for __builtins__ in [{}]]",
    "(lambda __builtins__: 1)(2)",
    "[1 for re.search in [len]]",
    "[1 for output.x in [1]]",
    "re.compile('a').scanner('a').match().re",
    "re.error('x').with_traceback",
    "re.DEBUG",
    "list[int].mro()",
    "list[int].append.__objclass__",
    "(int | str).__args__[0].__base__",
    "re.I.__class__.__members__",
    "int.from_bytes.__self__",
    "re.sub('.', '{0.__class__}'.format, 'a')",
    "f'{output.__class__}'",
    "f'{output!r:{().__class__}}'",
]


def test_bombs_end_within_their_limits_and_take_no_memory_of_ours():
    bombs = [source for source in (*HOSTILE["bomb"], *BOMBS) if accepted(source)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = dict(zip(bombs, evaluate(bombs, CONTEXT, limit_s=0.05), strict=True))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    passed = [source for source, ended in ends.items() if ended.ok]
    assert passed == ["re.compile('(((a{1,1000}){1,1000}){1,1000})')"], "the one that is cheap in CPython"
    undecided = [ended.message for ended in ends.values() if ended.ok is None]
    assert len(undecided) >= 25
    assert all(message.startswith(("ran out of time", "ran out of memory")) for message in undecided)
    assert grown_kb < 50_000


@pytest.mark.parametrize("end", ["1 == 1", "output == 'x'", "len(transcript) == 1"])
def test_the_order_of_assertions_never_matters(end):
    sources = [*HOSTILE["true"], *HARMLESS, "transcript.clear()", "not outcome.update(n=0)", "(output := output)", end]
    expected = {source: outcome(source) for source in sources}
    for seed in range(3):
        shuffled = random.Random(seed).sample(sources, len(sources))
        assert dict(zip(shuffled, evaluate(shuffled, CONTEXT), strict=True)) == expected


def test_the_callers_data_is_never_changed():
    context = {"transcript": [1], "outcome": {"n": 1}}
    evaluate(["transcript.clear()", "outcome.clear()"], context)
    assert context == {"transcript": [1], "outcome": {"n": 1}}


def test_an_expression_may_span_lines_and_end_in_a_comment():
    assert outcome("(1 +\n 1) == 2  # two").ok


def test_truth_values_are_pythons():
    sources = ["output", "tool_calls[1:]", "outcome.get('x')", "float('nan')", "output[:0]", "errors", "output or ''"]
    assert [ended.ok for ended in evaluate(sources, CONTEXT)] == [True, False, False, True, False, False, True]


def test_a_match_is_true_and_no_match_is_not():
    assert outcome("re.search('def', output)").ok is True
    assert outcome("re.search('nope', output)") == (False, "")


def test_a_function_as_the_result_fails():
    for source in ("[len][0]", "(lambda: str)()", "outcome.get('x', re)"):
        assert "did you forget to call it?" in outcome(source).message
        assert outcome(source).ok is False


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("ouput == 'x'", "raised NameError: 'ouput' is not known in assertions; did you mean 'output'?"),
        ("true", "did you mean 'True'?"),
        ("1 // len(errors)", "raised ZeroDivisionError"),
        ("outcome['gone']", "raised KeyError"),
        ("output.foo()", "raised AttributeError"),
        ("[x for x in [1]] and x", "raised NameError"),
        ("(lambda f: f(f))(lambda f: f(f))", "raised RecursionError"),
    ],
)
def test_an_assertion_that_raises_fails_with_the_error(source, words, capfd):
    ended = outcome(source)
    assert ended.ok is False
    assert "the assertion raised" in ended.message
    assert words in ended.message
    assert capfd.readouterr() == ("", "")


def test_every_documented_name_is_there():
    assert evaluate([f"[{name}] != 1" for name in (*CONTEXT_NAMES, *BUILT_IN_NAMES)], CONTEXT) == [(True, "")] * 28


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


def test_lone_surrogates_are_replaced_and_nul_is_kept():
    dirty = {"output": "a\ud800\0", "outcome": {"\udfff": ["\ud83d\ude00"]}}
    sources = ["output == 'a\\ufffd\\x00'", "outcome['\\ufffd'] == ['😀']"]
    assert evaluate(sources, dirty) == [(True, ""), (True, "")]


def test_a_name_without_evidence_makes_undecided_only_what_reads_it():
    missing = {"tool_calls": "not recorded"}
    sources = ["len(tool_calls) == 0", "'tool_calls' != output", "not [1 for call in tool_calls]"]
    ended = evaluate(sources, CONTEXT, missing)
    assert ended == [(None, "not recorded"), (True, ""), (None, "not recorded")]


def test_large_data_is_no_trouble():
    events = [{"type": "tool", "content": "x" * 100, "number": number} for number in range(20_000)]
    big = {"output": "x" * 10_000_000, "transcript": events}
    sources = ["len(output) == 10_000_000", "sum(event['number'] for event in transcript) == 199990000"]
    assert evaluate(sources, big) == [(True, ""), (True, "")]


def run_script(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)


def test_a_process_that_used_assertions_ends_by_itself_and_prints_nothing():
    run = run_script("from waza.untrusted.python_assertions import evaluate; assert evaluate(['1 == 1'], {})[0].ok")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize("count", [400, pytest.param(size(20_000, 2_000, 20_000), marks=pytest.mark.campaign)])
def test_generated_expressions_have_the_values_of_cpython(count):
    found, counts = differences(expressions(count, seed=count))
    assert found == []
    assert counts["compared: value"] > 0.4 * count
    assert counts["refused wholly"] < 0.05 * count


def test_a_difference_from_cpython_would_be_found():
    disagree = [
        "re.search(r'done$', 'all done\\n').span()",
        "round(2.675, 2)",
        "sorted(['b', 'A'], key=str.lower)",
        "(1.0).is_integer()",
    ]
    assert differences(disagree)[0] == []
    wrong = by_cpython(["round(2.675, 1)", "re.findall('[[(]', '((')", "1 // 0", "'a'"])
    found, _ = differences(["round(2.675, 2)", "re.findall('[[(]', '(')", "1 // 1", "1 // 0"], wrong)
    assert len(found) == 4
