"""A comparison in words: for a terminal, as Markdown, as a page; text of agents is text and nothing else."""

import io
import json
import re

import pytest
from hostile import STRINGS, hostile_run
from markdown_it import MarkdownIt
from msgspec.structs import replace
from rich.console import Console
from test_html import refused as refused_in_page

from waza.analysis.comparison import compare
from waza.reports.comparison import document, sentence
from waza.reports.document import ForeignText, Heading, TextLine, markdown_document, print_document
from waza.reports.html.components import document_page
from waza.stats.difference import verdict_on_passing
from waza.stats.paired import Tally
from waza.untrusted.json import to_json

OURS = {"heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "strong", "bullet_list", "list_item"}
PLAIN = {"inline", "text", "code_inline", "softbreak"}


def hostile_comparison(text):
    """A comparison in which each text of an author or an agent is `text`, with a flip and a difference in arguments."""
    before = hostile_run(text)
    results = list(before.results)
    results[0] = replace(results[0], status="passed", grades=[replace(g, status="passed") for g in results[0].grades])
    calls = [replace(call, args={text: [text, 1]}) for call in results[0].trace.tool_events]
    results[0] = replace(results[0], trace=replace(results[0].trace, tool_events=calls))
    spec = before.spec | {"config": {"trials_per_task": 1, "pass_rule": "any"}}
    earlier, later = (replace(before, results=some[:1], spec=spec) for some in (results, before.results))
    return replace(compare(earlier, later), warnings=[text], added=[text], removed=[text], asked_otherwise=[text])


def tokens_of(text):
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield token
        yield from token.children or ()


def refused_in_markdown(text):
    kinds = {token.type.removesuffix("_open").removesuffix("_close") for token in tokens_of(text)}
    return kinds - OURS - PLAIN


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_no_text_of_an_agent_is_more_than_text(text):
    found = hostile_comparison(text)
    assert refused_in_page(document_page(document(found), text)) == []
    made = markdown_document(document(found))
    assert refused_in_markdown(made) == set()
    words = " ".join(token.content for token in tokens_of(made) if token.type == "text")
    assert not re.search("owned|script|@|SUM|HYPERLINK", words)
    screen = io.StringIO()
    print_document(document(found), Console(file=screen, width=120, markup=False))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", screen.getvalue())
    json.loads(json.dumps(to_json(found), allow_nan=False))


def test_text_that_is_not_escaped_would_be_detected():
    bare = [text for text in STRINGS if refused_in_markdown(f"- {text}\n") - {"softbreak"}]
    assert len(bare) > 15
    assert refused_in_page("<p><script>1</script></p>")


def test_a_line_below_a_list_is_no_part_of_it():
    made = markdown_document([Heading(("a",)), TextLine(("x",), "", 1), TextLine((ForeignText("y"),), "bad")])
    kinds = [token.type for token in MarkdownIt().parse(made)]
    assert kinds.index("bullet_list_close") < len(kinds) - 3


@pytest.mark.parametrize(
    ("tallies", "start"),
    [
        (
            [Tally(1, 1, 0, 1)] * 8,
            "Worse: pass rate -100.0 points over 8 tasks (95 % interval -100.0 to -26.1), p",
        ),
        (
            [Tally(0, 1, 1, 1)] * 8,
            "Better: pass rate +100.0 points over 8 tasks (95 % interval +26.1 to +100.0), p",
        ),
        (
            [Tally(5, 5, 5, 5)] * 200,
            "No difference shown: pass rate +0.0 points over 200 tasks (95 % interval -1.8 to +1.8), p = 1.0000. A",
        ),
        (
            [Tally(1, 1, 1, 1)] * 3,
            "Too little evidence: pass rate +0.0 points over 3 tasks (95 % interval -70.8 to +70.8), p = 1.0000.",
        ),
        ([], "Too little evidence: no task was decided in both runs."),
    ],
)
def test_a_verdict_in_a_sentence(tallies, start):
    assert sentence(verdict_on_passing(tallies)).startswith(start)


def test_too_little_evidence_says_what_would_do():
    text = sentence(verdict_on_passing([Tally(1, 2, 1, 2)] * 10 + [Tally(2, 2, 0, 2), Tally(0, 2, 1, 2)]))
    assert re.search(r"would be found in \d+ % of such comparisons, one of \d+\.\d points in 80 %", text)
    assert re.search(r"to show 10\.0 points it takes about \d+ tasks like these", text)
