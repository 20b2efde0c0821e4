import json
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from canaries import SECRET, Canaries, gone

from campaign import count
from waza.process.question_worker import NoAnswer
from waza.untrusted.javascript_assertions import CHILD, check_assertion, evaluate

HOSTILE = json.loads((Path(__file__).parent.parent / "data" / "hostile" / "assertions.json").read_text())
CONTEXT = HOSTILE["context"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ESCAPES = [
    "require('fs').readFileSync({file}, 'utf8').includes({secret})",
    "process.env.WAZA_CANARY === {secret}",
    "Object.constructor('return process')().env.WAZA_CANARY === {secret}",
    "(() => {{}}).constructor('return this')().process.mainModule.require('child_process').execSync('true')",
    "globalThis.std.open({file}, 'r').readAsString().includes({secret})",
    "std.getenv('WAZA_CANARY') === {secret}",
    "os.exec(['sleep', '61.5'])",
    "import('os').then(os => os.exec(['sleep', '61.5']))",
    "import('{file}')",
    "new XMLHttpRequest()",
    "fetch('http://127.0.0.1:{port}/')",
    "new WebSocket('ws://127.0.0.1:{port}/')",
    "new Worker({file})",
    "Bun.file({file})",
    "Deno.readTextFileSync({file})",
    "scriptArgs.length > 0",
    "load({file})",
    "print(1) === undefined",
    "this.constructor.constructor('return process')()",
    "eval('process')",
    "Reflect.ownKeys(globalThis).some(key => /^(std|os|bjson|process|require|console|print)$/.test(key))",
]
BOMBS = [
    "(() => { try { while (true); } catch { return true } })()",
    "/(a+)+$/.test('a'.repeat(50000) + 'b')",
    "new Proxy({}, {get() { while (true); }}).x",
    "(() => { throw {toString() { while (true); }} })()",
    "'a'.repeat(5e8).length > 0",
    "(() => { const all = []; for (;;) all.push('x'.repeat(1e6)) })()",
    "(() => { let s = 'x'; for (;;) s += s })()",
    "new Uint8Array(2e9).length > 0",
    "Array(2 ** 32 - 1).fill(0).length > 0",
]
UNSTOPPABLE = "String(3n ** 600000n).length > 0"
"""One native operation of many seconds, in which the engine does not check its time limit."""


def outcome(source, missing=None):
    return evaluate([source], CONTEXT, missing)[0]


@pytest.mark.parametrize(
    ("source", "ok"),
    [
        ("output.length > 50", True),
        ("output.includes('world')", True),
        ("outcome['status'] === 'ok' && outcome.n === 3", True),
        ("tool_calls.some(call => call.name === 'bash')", True),
        ("errors.length === 0", True),
        ("duration_ms < 60000", True),
        ("/def \\w+/.test(output)", True),
        ("typeof require === 'undefined' && typeof process === 'undefined'", True),
        ("True && !False && output.length", True),
        ("[1, 2].slice(errors.length)", True),
        ("BigInt(outcome.n) // three", True),
        ("(() => {\n  return true\n})()", True),
        ("output.length * 0", False),
        ("output.slice(0, 0)", False),
        ("Number('x')", False),
        ("outcome.x", False),
        ("BigInt(0)", False),
        ("-errors.length", False),
    ],
)
def test_truth_values_are_javascripts(source, ok):
    check_assertion(source)
    assert outcome(source) == (ok, "")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("what language is this, anyways?", "column 6: Unexpected identifier 'language'"),
        ("1 +", "column 4: the expression ends too early"),
        ("(1", "column 3: the expression ends too early"),
        ("(1 +\n+", "line 2, column 2: the expression ends too early"),
        ("var x = 1", "column 1: unexpected token in expression: 'var'"),
        ("a; b", "column 2"),
        ("1); globalThis.x = 1; (1", "column 2: Unexpected token ')'"),
        ("1]; [1", "column 2"),
        ("...output", "column 1"),
        ("await output", "column"),
        ("yield 1", "column"),
        ("1 /* never closed", "comment"),
        ("", "blank"),
        ("\n ", "blank"),
        ("// nothing", "too early"),
        ("1" * 10_001, "at most 10000 characters"),
        ("'\0'", "NUL"),
        ("'\ud800'", "lone surrogates"),
        ("(" * 4000 + "1" + ")" * 4000, ""),
    ],
)
def test_what_is_not_one_expression_is_refused_with_its_place(source, words):
    with pytest.raises(ValueError) as refusal:
        check_assertion(source)
    assert words in str(refusal.value)


def test_checking_whether_an_assertion_compiles_does_not_run_it():
    check_assertion("(() => { while (true); })()")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("null.x", "raised TypeError: cannot read property 'x' of null"),
        ("ouput.length", "raised ReferenceError: ouput is not defined; did you mean 'output'?"),
        ("output = 1", "raised TypeError: 'output' is read-only"),
        ("outcome.n = 5", "raised TypeError: 'n' is read-only"),
        ("fresh = 1", "raised ReferenceError"),
        ("(() => { throw 'plain' })()", "raised plain"),
        ("(f => f(f))(f => f(f))", "raised RangeError"),
        ("(() => output.trim)()", "the result is a function, which is always true; did you forget to call it?"),
        ("output.trim", "did you forget to call it?"),
        ("(async () => false)()", "a promise"),
    ],
)
def test_an_assertion_without_a_value_fails_with_the_reason(source, words):
    ended = outcome(source)
    assert ended.ok is False
    assert words in ended.message


@linux
def test_no_escape_reaches_a_file_a_variable_a_process_or_a_socket(tmp_path, monkeypatch):
    monkeypatch.setenv("WAZA_CANARY", SECRET)
    CHILD.close()
    evaluate(["1 == 1"], {})
    canaries = Canaries(tmp_path)
    blanks = {"file": json.dumps(str(canaries.file)), "secret": json.dumps(SECRET), "port": canaries.port}
    passed = [source for source in ESCAPES if outcome(source.format(**blanks)).ok is not False]
    reached = canaries.reached()
    count("escape attempts", len(ESCAPES))
    count("contacts with anything outside", len(passed) + len(reached))
    assert (passed, reached) == ([], [])


def test_bombs_end_within_their_limits_and_take_no_memory_of_ours():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = dict(zip(BOMBS, evaluate(BOMBS, CONTEXT, limit_s=0.6), strict=True))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert {source: ended for source, ended in ends.items() if ended.ok is not None} == {}
    assert all(ended.message.startswith(("ran out of time", "ran out of memory")) for ended in ends.values())
    assert grown_kb < 50_000
    assert outcome("1").ok


@linux
def test_a_child_that_does_not_answer_is_killed():
    evaluate(["1 == 1"], {})
    pid = CHILD.pid
    assert not gone(pid, within_s=0.1)
    with pytest.raises(NoAnswer, match=r"ran out of time \(0\.5 s\)"):
        CHILD.ask({"source": UNSTOPPABLE, "context": "{}", "missing": []}, 0.5)
    assert gone(pid)
    assert outcome("1").ok


def test_the_order_of_assertions_never_matters():
    sources = ["globalThis.x = 1", "typeof x === 'undefined'", "Array.prototype.some = 1", "[1].some(n => n)", "output"]
    expected = {source: outcome(source) for source in sources}
    assert expected["typeof x === 'undefined'"].ok
    for seed in range(10):
        shuffled = random.Random(seed).sample(sources, len(sources))
        assert dict(zip(shuffled, evaluate(shuffled, CONTEXT), strict=True)) == expected


def test_a_name_without_evidence_makes_undecided_only_what_reads_it():
    missing = {"tool_calls": "not recorded"}
    for source in (
        "tool_calls.length === 0",
        "typeof tool_calls",
        "(() => { try { tool_calls } catch {} return 1 })()",
    ):
        assert outcome(source, missing) == (None, "not recorded")
    assert outcome("output !== 'tool_calls'", missing) == (True, "")


def test_odd_data_is_no_trouble():
    dirty = {"output": "a\ud800\0\u2028", "outcome": {"__proto__": 1, "nan": float("nan"), "\udfff": 2**70}}
    sources = ["output === 'a\\ufffd\\0\\u2028'", "outcome.nan === null", "outcome['\\ufffd'] > 1e21"]
    assert evaluate(sources, dirty) == [(True, "")] * 3


def test_large_data_is_no_trouble():
    events = [{"type": "tool", "content": "x" * 100, "number": number} for number in range(20_000)]
    big = {"output": "x" * 10_000_000, "transcript": events}
    assert evaluate(["output.length === 1e7 && transcript.at(-1).number === 19999"], big) == [(True, "")]


def test_without_the_engine_the_message_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "quickjs", None)
    with pytest.raises(ValueError, match=r"pip install 'waza\[js\]'"):
        check_assertion("output")


def test_a_process_that_used_assertions_ends_by_itself_and_prints_nothing():
    script = "from waza.untrusted.javascript_assertions import evaluate; assert evaluate(['1 == 1'], {})[0].ok"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
