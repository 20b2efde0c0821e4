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
from waza.untrusted.constant_assertions import constant_javascript
from waza.untrusted.javascript_assertions import CHILD, check_assertion, evaluate

HOSTILE = json.loads((Path(__file__).parent.parent / "data" / "hostile" / "assertions.json").read_text())
CONTEXT = HOSTILE["context"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

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
"""One native operation of many seconds, in which the engine does not look at its clock."""


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
def test_truth_is_javascripts(source, ok):
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
        ("'\ud800'", "half characters"),
        ("(" * 4000 + "1" + ")" * 4000, ""),
    ],
)
def test_what_is_not_one_expression_is_refused_with_its_place(source, words):
    with pytest.raises(ValueError) as refusal:
        check_assertion(source)
    assert words in str(refusal.value)


REFUSED = {
    "an array": ["[output === 'yes']", "[]", "( /* a */ ([output]) ) // b", "output.x, [1]", "[...output]"],
    "an object literal": ["({ok: output === 'yes'})", "{a: 1}", "{}"],
    "an object made by 'new'": ["new Boolean(output === 'yes')", "new Date", "new (class {})", "new a.b.C(output)"],
    "a function": ["() => output", "x => x ? 1 : 0", "async () => 1", "function f(a) { return a }", "async x => 1"],
    "a class": ["class A {}", "(class extends Object { x() {} })"],
    "a regular expression": ["/yes/", "/[/\\]]/g"],
    "a text literal": ["'yes'", '"a" /* b */', "`yes`", "`yes ${output}`", "output === 'a' || 'b'", "''", "``"],
    "the constant": ["true", "True", "0", "1e5", "0x0", "10n", "null", "undefined", "NaN", "!0", "!!1", "JSON", "(1)"],
    "an expression of constants": [
        *[
            "-1",
            "1 + 1",
            "~(2 * 3)",
            "'a' + 'b'",
            "({a: 1}).a",
            "[1][0]",
            "'abc'.length",
            "'a' === 'a'",
            "'a' in {a: 1}",
        ],
        *["{a: {'b': 1}}.a.b", "[1, 2].length > 1", "`a`?.length", "!('a' === 'b')"],
    ],
    "'typeof'": ["typeof output", "typeof (1)"],
    "'void'": ["void 0"],
    "a choice between": ["output ? 1 : 'b'", "output ? x => 1 : y => 2"],
    "'&&' with the constant false": ["output && false"],
}


@pytest.mark.parametrize(("what", "source"), [(what, source) for what, group in REFUSED.items() for source in group])
def test_what_comes_to_the_same_whatever_the_agent_did_is_refused_with_the_reason(what, source):
    with pytest.raises(ValueError) as refusal:
        check_assertion(source)
    assert what in str(refusal.value)
    assert any(words in str(refusal.value) for words in ("cannot fail", "cannot pass", "checks nothing"))


BOTH_WAYS = [
    *("output", "output.length", "1 == 1", "`${output}`", "`${`${output}`}`", "output && 'x'", "output ? 1 : 0"),
    *("new RegExp('ye+s').test(output)", "new Set(output).size > 1", "new Map([[1, 2]]).get(output)", "!output"),
    *("/x/.test(output)", "output.length / /x/.exec(output).index", "output.length / 2 / 1", "[...output].length"),
    *("(() => { if (output) { return /[)]/.test(output) } })()", "!function () { return output }()", "output?.length"),
    *(
        "({a: output}).a",
        "({output}).output",
        "[1].includes(output)",
        "'a'.includes(output)",
        "-1 < 0",
        "{a: x => 1}.a(1)",
    ),
    *("typeof output === 'string'", "output.x ?? true", "output in {a: 1}", "'a' in outcome", "output?.5:0"),
    *(
        "{a: output}.a",
        "[output][0]",
        "(function () { return output })()",
        "JSON.parse(output)",
        "`a`.includes(output)",
    ),
    *("output.replace(/'/g, '\"') === '}{'", "((a) => a)(output)", "output.at(-1) /* [ */"),
]


def test_what_can_come_out_both_ways_is_accepted():
    assert [(source, why) for source in BOTH_WAYS if (why := constant_javascript(source))] == []
    for source in BOTH_WAYS:
        check_assertion(source)


def test_looking_whether_an_assertion_compiles_does_not_run_it():
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
def test_what_gives_no_value_does_not_hold_and_says_why(source, words):
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
    held = [source for source in ESCAPES if outcome(source.format(**blanks)).ok is not False]
    reached = canaries.reached()
    count("escape attempts", len(ESCAPES))
    count("contacts with anything outside", len(held) + len(reached))
    assert (held, reached) == ([], [])


def test_bombs_end_within_their_limits_and_take_no_memory_of_ours():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = dict(zip(BOMBS, evaluate(BOMBS, CONTEXT, limit_s=0.6), strict=True))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert {source: ended for source, ended in ends.items() if ended.ok is not None} == {}
    assert all(ended.message.startswith(("ran out of time", "ran out of memory")) for ended in ends.values())
    assert grown_kb < 50_000
    assert outcome("1").ok


@linux
def test_a_child_that_does_not_come_back_is_killed():
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
    missing = {"tool_calls": "nobody looked"}
    for source in (
        "tool_calls.length === 0",
        "typeof tool_calls",
        "(() => { try { tool_calls } catch {} return 1 })()",
    ):
        assert outcome(source, missing) == (None, "nobody looked")
    assert outcome("output !== 'tool_calls'", missing) == (True, "")


def test_odd_data_is_no_trouble():
    dirty = {"output": "a\ud800\0\u2028", "outcome": {"__proto__": 1, "nan": float("nan"), "\udfff": 2**70}}
    sources = ["output === 'a\\ufffd\\0\\u2028'", "outcome.nan === null", "outcome['\\ufffd'] > 1e21"]
    assert evaluate(sources, dirty) == [(True, "")] * 3


def test_large_data_is_no_trouble():
    events = [{"type": "tool", "content": "x" * 100, "number": number} for number in range(20_000)]
    big = {"output": "x" * 10_000_000, "transcript": events}
    assert evaluate(["output.length === 1e7 && transcript.at(-1).number === 19999"], big) == [(True, "")]


def test_a_machine_without_the_engine_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "quickjs", None)
    with pytest.raises(ValueError, match=r"pip install 'waza\[js\]'"):
        check_assertion("output")


def test_a_process_that_used_assertions_ends_by_itself_and_says_nothing():
    script = "from waza.untrusted.javascript_assertions import evaluate; assert evaluate(['1 == 1'], {})[0].ok"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
