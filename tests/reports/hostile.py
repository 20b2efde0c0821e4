"""Sixty strings an agent may print to break a report, and runs that have one in every text field."""

from waza.model import Check, Grade, Result, Run, SkillInvocation, ToolEvent, Trace, Usage

CANARY = "http://127.0.0.1:9/owned"
"""Where a page that obeys an agent would go."""

STRINGS = [
    # scripts and resources
    "<script>window.owned=1;document.title='owned'</script>",
    "</script><script>window.owned=1</script>",
    "<img src=x onerror=\"window.owned=1;document.title='owned'\">",
    f"<img src='{CANARY}.png'>",
    "<svg onload=window.owned=1>",
    f"<svg><use href='{CANARY}.svg#a'></use></svg>",
    f"<link rel=stylesheet href={CANARY}.css>",
    f"<style>@import '{CANARY}.css';body{{display:none}}</style>",
    f"<iframe src='{CANARY}'></iframe>",
    "<iframe srcdoc='<script>parent.owned=1</script>'></iframe>",
    f"<meta http-equiv=refresh content='0;url={CANARY}'>",
    f"<base href='{CANARY}/'>",
    "<a href='javascript:window.owned=1'>click</a>",
    f"<form action={CANARY}><input autofocus onfocus=window.owned=1></form>",
    "<body onload=window.owned=1>",
    "<details open ontoggle=window.owned=1>",
    "\"><script>window.owned=1</script>",
    "' onmouseover='window.owned=1",
    "\" autofocus onfocus=\"window.owned=1",
    "</pre></details></body></html><script>window.owned=1</script>",
    "</title><script>window.owned=1</script>",
    "</style><script>window.owned=1</script>",
    "<!--", "-->", "<!-- --!><script>window.owned=1</script>",
    "<![CDATA[ x ]]>", "]]>", "]]>]]><failure/>",
    "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e 'owned'>]>&e;",
    "&lt;b&gt; &amp;amp; &#60;script&#62; &nbsp; &bogus;",
    # control characters, encodings
    "\x00", "\x1b[31mred\x1b[0m\x1b]0;owned\x07", "a\x08\x7f\x9bb", "one\r\ntwo\rthree\nfour",
    "\ud800", "\udfff\ud83d end",
    "\ufffe\uffff\ufdd0\U0001ffff", "\u202egnp.exe\u202c", "zero\u200bwidth\ufeff", "\u2028line\u2029para\x85next",
    "\U000e0041\U000e0042", "\n\n\nleading and trailing\n\n\n", "\t\ttabs\t", " ", "",
    # formulas
    "=1+1", "=HYPERLINK(\"" + CANARY + "\",\"x\")", "+cmd|'/c calc'!A0", "-2+3", "@SUM(A1:A9)",
    "\t=1+1", "'=quoted", '"a","b"\n"c"', "a;b,c\td",
    # markdown and workflow commands
    f"![x]({CANARY}.png) [y]({CANARY}) <{CANARY}> {CANARY}", "@everyone #1 **bold** `code` ``` ~~~ | cell | \\| --- |",
    "```\n# heading\n<script>window.owned=1</script>\n```", "::error file=a,line=1::owned\n::set-env name=PATH::owned",
    "%0A::add-mask::%25 : , ##[error]owned",
    "word" * 1_500,
]  # fmt: skip
assert len(STRINGS) == 60


def hostile_results(text, task="t"):
    """A failed, an undecided and an aborted trial with `text` wherever a text can be."""
    checks = [
        Check(False, text, text, text, [text, {text: text}]),
        Check(None, text, text),
        Check(True, text),
    ]
    grades = [
        Grade(name=text, type=text, status="failed", score=0.5, feedback=text, checks=checks, details={text: text}),
        Grade(name=text, type=text, status="error", score=0.0, feedback=text),
    ]
    calls = [
        ToolEvent(tool_name=text, args={text: text}, result=text, tool_call_id=text),
        ToolEvent(tool_name=text, args=text, result={text: [text]}, success=False, error=text),
    ]
    trace = Trace(
        input=text,
        output=text,
        error=text,
        model=text,
        engine=text,
        session_id=text,
        events=[{"type": text, "content": text}],
        tool_events=calls,
        usage=Usage(input_tokens=1, output_tokens=2, cost_usd=0.5),
        skill_invocations=[SkillInvocation(name=text, path=text)],
        outcome={text: text},
    )
    lost = Trace(input=text, output="", status="error", error=text)
    return [
        Result(task_id=task, trial=1, status="failed", trace=trace, grades=grades, reason=text, started_at=text),
        Result(task_id=task, trial=2, status="error", trace=lost, reason=text),
        Result(task_id=task, trial=3, status="skipped", trace=trace, reason=text),
    ]


def hostile_run(*texts):
    """A run with each of the strings as a task's id, name and tag and in its trials; the first one names the run."""
    tasks = [{"id": f"{text}#{number}", "name": text, "tags": [text]} for number, text in enumerate(texts)]
    spec = {
        "tasks": tasks,
        "config": {"trials_per_task": 4, "group_by": "tags"},
        "metrics": [{"name": texts[0] or "m", "threshold": 0.5}, {"name": "readiness"}],
        "file": texts[0],
        "places": {task["id"]: {"file": texts[0], "line": 3} for task in tasks},
    }
    results = [one for task, text in zip(tasks, texts, strict=True) for one in hostile_results(text, task["id"])]
    about = {"id": texts[0], "name": texts[0], "started_at": texts[0], "engine": texts[0]}
    return Run(**about, model=texts[0], skill=texts[0], spec=spec, results=results, folder="runs/one")
