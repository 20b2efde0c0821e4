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
from python_expressions import accepted, by_cpython, differences, expressions

from campaign import count, size
from waza.untrusted.python_assertions import check_assertion, evaluate
from waza.untrusted.python_expressions import BUILT_IN_NAMES, CONTEXT_NAMES, MAX_CHARS

HOSTILE = json.loads((Path(__file__).parent.parent / "data" / "hostile" / "assertions.json").read_text())
CONTEXT = HOSTILE["context"]
NOT_OFFERED = ["hash", "repr", "type", "divmod", "print", "open", "map", "frozenset", "ord", "pow"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


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
    attempts = [*canaries.payloads(), *HOSTILE["escape"], *ESCAPES]
    ends = [outcome_or_refusal(source) for source in attempts]
    held = [s for s, ended in zip(attempts, ends, strict=True) if ended and ended.ok and s not in HARMLESS]
    reached = canaries.reached()
    count("escape attempts", len(attempts))
    count("contacts with anything outside", len(held) + len(reached))
    assert (held, reached) == ([], [])


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


def test_what_only_shows_itself_while_running_is_undecided_not_wrong():
    sources = ["('{0.__cl' + 'ass__}').format(output)", "output.encode('cp0' + '37')", "list[int].append == 1"]
    for ended in evaluate(sources, CONTEXT):
        assert ended.ok is None
        assert "not available in assertions" in ended.message


@linux
def test_the_worker_has_nothing_but_two_pipes_and_a_bounded_memory():
    evaluate(["1 == 1"], {})
    workers = [pid for pid in Canaries._children() if b"evaluator" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert workers
    for worker in workers:  # one for each grade that was ever worked on at the same time
        status = Path(f"/proc/{worker}/status").read_text()
        limits = Path(f"/proc/{worker}/limits").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        assert re.search(r"Max open files +0 +0", limits)
        assert re.search(r"Max address space +536870912 +536870912", limits)
        assert {os.readlink(fd).split(":")[0] for fd in Path(f"/proc/{worker}/fd").iterdir()} == {"pipe", "/dev/null"}
        assert Path(f"/proc/{worker}/environ").read_bytes().split(b"=")[0] == b"PYTHONHASHSEED"


@linux
def test_code_that_broke_out_of_the_language_finds_no_file_program_or_socket(tmp_path):
    attempts = [
        f"open({str(tmp_path / 'x')!r}, 'w')",
        "open('/etc/passwd')",
        "__import__('os').fork()",
        "__import__('os').execv('/bin/true', ['true'])",
        "__import__('os').kill(__import__('os').getppid(), 9)",
        "__import__('socket').socket()",
        "__import__('os').pipe()",
        "__import__('os').listdir('/')",
    ]
    script = f"""
import os, socket, sys
import waza.untrusted.python_evaluator as evaluator
evaluator.close_in()
for attempt in {attempts!r}:
    try:
        eval(attempt)
        os.write(1, attempt.encode())
    except OSError:
        os.write(1, b".")
"""
    said = run_script(script).stdout
    count("escape attempts", len(attempts))
    count("contacts with anything outside", len(attempts) - said.count("."))
    assert said == "." * len(attempts)


def test_bombs_end_within_their_limits_and_take_no_memory_of_ours():
    bombs = [source for source in (*HOSTILE["bomb"], *BOMBS) if accepted(source)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = dict(zip(bombs, evaluate(bombs, CONTEXT, limit_s=0.05), strict=True))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    held = [source for source, ended in ends.items() if ended.ok]
    assert held == ["re.compile('(((a{1,1000}){1,1000}){1,1000})')"], "the one that is cheap in CPython"
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


def test_truth_is_pythons():
    sources = ["output", "tool_calls[1:]", "outcome.get('x')", "float('nan')", "output[:0]", "errors", "output or ''"]
    assert [ended.ok for ended in evaluate(sources, CONTEXT)] == [True, False, False, True, False, False, True]


def test_a_match_is_true_and_no_match_is_not():
    assert outcome("re.search('def', output)").ok is True
    assert outcome("re.search('nope', output)") == (False, "")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("True", "the constant True is always true, so this assertion cannot fail"),
        ("(5)", "the constant 5 is always true"),
        ("None", "the constant None is always false, so this assertion cannot pass"),
        ("-1", "the same whatever the agent does"),
        ("2 ** 10 % 3", "the same whatever the agent does"),
        ("'a' in 'abc'", "a comparison of constants is the same whatever the agent does"),
        ("'done' in 'output'", "a name of the context stands without quotes"),
        ("not 'x' == 'x'", "a comparison of constants"),
        ("1 in [1, 2]", "a comparison of constants"),
        ("{'a': 1}['a']", "an expression of constants"),
        ("'abc'[0]", "an expression of constants"),
        ("'hello' 'world'", "a text literal is always true"),
        ("b'x'", "a text literal is always true"),
        ("f'x'", "a text literal with characters in it is always true"),
        ("f'answer: {output}'", "always true"),
        ("(output == 'yes', 'the answer')", "a tuple display, whatever is in it, is always true"),
        ("output == 'yes', 'the answer'", "an assertion has no message"),
        ("[output == 'yes']", "did you mean all([...]) or any([...])?"),
        ("{'ok': output}", "a dict display"),
        ("{output}", "a set display"),
        ("[]", "an empty list is always false"),
        ("not ()", "the negation of an empty tuple is always true"),
        (
            "lambda: output == 'yes'",
            "a lambda is always true, so this assertion cannot fail; did you forget to call it?",
        ),
        ("(x := [output])", "a list display"),
        ("output == 'a' or 'b'", "'or' with a text literal is always true"),
        ("output and False", "'and' with the constant False is always false"),
        ("'a' if output else 'b'", "a choice between a text literal and a text literal is always true"),
        ("len", "the built-in 'len' is always true, so this assertion cannot fail; did you forget to call it?"),
        ("re", "the built-in 're'"),
        (
            "output.strip",
            "the method 'strip' is always true, so this assertion cannot fail; did you forget to call it?",
        ),
        ("re.search", "the method 'search'"),
        ("(x for x in output)", "a generator is always true, so this assertion cannot fail; did you mean any(...)"),
        ("not (x for x in [])", "the negation of a generator"),
        ("bool(x for x in output)", "a generator is always true"),
        ("output and (c for c in output)", "a generator is always true"),
        ("len(output) > 3 and [1 for c in output if (lambda: c)]", "column 44: a lambda is always true"),
        ("re.finditer('x', output)", "did you mean re.findall or re.search?"),
        ("zip(output, output)", "the result of 'zip' is always true"),
    ],
)
def test_what_comes_to_the_same_whatever_the_agent_did_is_refused_with_the_reason(source, words):
    with pytest.raises(ValueError) as refusal:
        check_assertion(source)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "source",
    [
        *("output", "len(output)", "[word for word in output.split() if word == 'yes']", "1 == 1", "f'{output}'"),
        *("[*tool_calls]", "{**outcome}", "output and 'x'", "1 if output else 0", "output[:3]", "not output"),
        *("(len := output) and len", "any(x for x in output)", "(lambda g: any(g))(x for x in output)", "re.I & 4"),
        *("m.start if (m := range(3)) else 0", "all([output == 'x'])", "(output == 'a') in (True, 'x')"),
    ],
)
def test_what_can_come_out_both_ways_is_accepted(source):
    check_assertion(source)


def test_a_function_that_is_the_result_does_not_hold():
    for source in ("[len][0]", "(lambda: str)()", "outcome.get('x', re)"):
        assert "did you forget to call it?" in outcome(source).message
        assert outcome(source).ok is False


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("output.__class__ == 1", "column 1: '.__class__': attributes that begin with an underscore are not available"),
        ("re.error == 1", "column 1: '.error' is not available in assertions"),
        ("len(output) > 1 and re.L", "'.L' is not available"),
        ("__debug__", "column 1: '__debug__': names that begin with two underscores are not available"),
        ("[1 for __x in output]", "'__x': names that begin"),
        ("'{0.__class__}'.format(output) == ''", "'.__class__'"),
        ("sorted(output, key='{}'.format)", "'.format' must be called where it is written"),
        ("output.encode('cp037') == b''", "the encoding 'cp037' is not available in assertions"),
        ("str(output.encode(), 'EUC-JP') == ''", "the encoding 'EUC-JP' is not available"),
        ("[1 for output.x in output]", "cannot set attributes"),
        *[(f"{name}(output)", f"'{name}' is not available in assertions") for name in NOT_OFFERED],
        ("[type(x) for x in output]", "column 2: 'type' is not available in assertions; of Python's functions there"),
        ("isinstance(output, ValueError)", "'ValueError' is not available"),
    ],
)
def test_what_is_not_available_is_refused_when_it_is_read(source, words):
    with pytest.raises(ValueError) as refusal:
        check_assertion(source)
    assert words in str(refusal.value)


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
def test_an_assertion_that_raises_does_not_hold_and_says_so(source, words, capfd):
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
    sources = ["1 == 1", "all(x < 10**13 for x in range(10**12))", "2 == 2"]
    evaluate(sources[:1], {})
    work = threading.Thread(target=lambda: ends.extend(evaluate(sources, {}, limit_s=30)))
    work.start()
    time.sleep(1)
    workers = [pid for pid in Canaries._children() if b"evaluator" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert workers
    for pid in workers:
        os.kill(pid, 9)
    work.join(30)
    assert ends == [(True, ""), (None, "ended its worker process"), (True, "")]


def run_script(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)


def test_a_process_that_used_assertions_ends_by_itself_and_says_nothing():
    run = run_script("from waza.untrusted.python_assertions import evaluate; assert evaluate(['1 == 1'], {})[0].ok")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_workers_of_its_own():
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
from waza.untrusted.python_assertions import evaluate
evaluate(["1 == 1"], {})
if (child := os.fork()) == 0:
    os._exit(0 if evaluate(["1 == 1"], {})[0].ok else 1)
assert os.waitpid(child, 0)[1] == 0
assert evaluate(["1 == 1"], {})[0].ok
"""
    run = run_script(script)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("count", [400, pytest.param(size(20_000, 2_000, 20_000), marks=pytest.mark.campaign)])
def test_generated_expressions_come_to_what_cpython_says(count):
    found, counts = differences(expressions(count, seed=count))
    assert found == []
    assert counts["compared: value"] > 0.4 * count
    assert counts["refused wholly"] < 0.05 * count


def test_a_difference_from_cpython_would_be_seen():
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
