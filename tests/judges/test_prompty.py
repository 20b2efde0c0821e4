"""`.prompty` files as rubrics: the real format, the sketch in the documentation, and whatever else may stand in one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waza.judges.rubrics import Rubric, parse_rubric
from waza.judges.rubrics.prompty import from_prompty

REAL = """\
---
name: Tool Call Judge
description: |
  Says whether tool calls
  fit the request
model:
  api: chat
  configuration: {type: azure_openai, azure_deployment: "${env:DEPLOYMENT}"}
  parameters:
    temperature: 0.0
    response_format: {type: json_object}
inputs:
  query:
    type: string
  tool_calls:
    type: list
sample:
  query: What is the weather?
outputs:
  score:
    type: int
---
system:
# Instruction
You are an expert. {# for reviewers only #}

user:
CONVERSATION: {{query}}
TOOL CALLS: {{ tool_calls }}
ANSWER: {{{response}}}
DEFINITIONS: {{tool_definitions}}

Output a JSON object with an integer score between 1 and 5.
"""

SKETCH = """\
name: CodeQualityEvaluator
description: Evaluates code quality
inputs:
  code: string
outputs:
  score: integer
  reasoning: string
system:
  Evaluate the code quality on a scale of 1-5...
    - names
  [evaluation criteria]
"""


def test_the_real_format_becomes_a_rubric():
    made = from_prompty(REAL, "judge.prompty", scale="pass-fail")
    rubric = made.rubric
    assert (rubric.name, rubric.version, rubric.scale) == ("tool-call-judge", "0.1.0", "pass-fail")
    assert rubric.description == "Says whether tool calls fit the request"
    assert rubric.needs == ("tool_events",)
    assert rubric.body.startswith("# Instruction\nYou are an expert.")
    assert "CONVERSATION: (shown below as Task input)" in rubric.body
    assert "TOOL CALLS: (shown below as Tool calls)" in rubric.body
    assert "ANSWER: (shown below as Candidate output)\n" in rubric.body
    assert "{{" not in rubric.body and "{#" not in rubric.body
    assert (
        "If the score is 4 or above, call `set_waza_grade_pass`.\nOtherwise call `set_waza_grade_fail`" in rubric.body
    )
    assert parse_rubric(made.text, rubric.source) == rubric


def test_what_cannot_be_carried_over_is_told():
    told = "\n".join(from_prompty(REAL, "judge.prompty").notes)
    for part in (
        "model settings are left out",
        "outputs are left out",
        "sample is left out",
        "not shown tool_definitions",
    ):
        assert part in told


def test_the_sketch_becomes_the_rubric_the_documentation_shows():
    made = from_prompty(SKETCH, "quality.prompty", scale="pass-fail")
    assert made.rubric.name == "code-quality-evaluator"
    assert made.rubric.description == "Evaluates code quality"
    assert made.rubric.body.startswith(
        "Evaluate the code quality on a scale of 1-5...\n  - names\n[evaluation criteria]\n\n## Verdict"
    )
    assert "4 or above, call `set_waza_grade_pass`" in made.rubric.body
    assert "call `set_waza_grade_fail`" in made.rubric.body


def test_a_graded_rubric_on_request():
    rubric = from_prompty(REAL, "judge.prompty", scale="1-5", pass_at=3, name="calls").rubric
    assert (rubric.name, rubric.scale, rubric.pass_at) == ("calls", "1-5", 3)
    assert "A score of 3 or above passes.\nCall `set_waza_grade_score` once" in rubric.body
    assert "set_waza_grade_pass" not in rubric.body


LEVELS = "\n".join(f"## [Coherence: {n}] (some words)\nWhat it is like." for n in (1, 2, 3, 4, 5))


@pytest.mark.parametrize(
    ("prompt", "scale"),
    [
        ("Output a JSON object with an integer score between 1 and 5.", "1-5"),
        ("Rate it on a Likert scale from 1 (worst) to 5 (best).", "1-5"),
        (f"# Ratings\n{LEVELS}\nGive a score based on the definitions.", "1-5"),
        ("Score:\n1 - bad\n2 - poor\n3 - fair\n4 - good\n5 - great", "1-5"),
        (f"# Ratings\n## [Coherence: 0] (none)\n{LEVELS}\nGive a score.", "pass-fail"),
        ("Give a score of 0 or 1.\n1. Read it\n2. Think\n3. Think\n4. Think\n5. Decide", "pass-fail"),
        ("Is the answer 1 to 5 sentences long?", "pass-fail"),
    ],
)
def test_a_scale_from_1_to_5_is_recognised(prompt, scale):
    rubric = from_prompty(f"---\nname: x\n---\n{prompt}", "x.prompty").rubric
    assert rubric.scale == scale
    assert ("set_waza_grade_score" in rubric.body) == (scale == "1-5")


def test_roles_are_recognised_as_prompty_does():
    sections = ["# System:\none\n", 'User[name="Ada"]:\ntwo\nuser: not a role\n', "assistant:\nthree", "tool:\nfour"]
    text = "---\nname: x\n---\n" + "\n".join(sections)
    made = from_prompty(text, "x.prompty")
    assert made.rubric.body.startswith(
        "one\n\ntwo\nuser: not a role\n\nExample of an answer, for its reasoning:\n\nthree\n\n## Verdict"
    )
    assert made.notes == ["a section of the role tool is left out"]


def test_without_roles_the_whole_text_is_the_prompt_and_the_file_gives_the_name():
    rubric = from_prompty(
        "---\ndescription: d\n---\nIs {{answer}} kind to {{user.question}}?", "some/Kind Answer.prompty"
    ).rubric
    assert rubric.name == "kind-answer"
    assert rubric.body.startswith("Is (shown below as Candidate output) kind to (shown below as Task input)?")
    assert "If what is asked above holds, call `set_waza_grade_pass`." in rubric.body


def test_a_score_on_another_scale_is_told():
    made = from_prompty("---\nname: x\n---\nGive a score between 0 and 1.", "x.prompty")
    assert made.notes == ["it asks for a score, but not from 1 to 5; say in the last section which score passes"]


def test_a_context_makes_the_rubric_need_a_source():
    for word in ("context", "ground_truth", "documents"):
        assert from_prompty(f"---\nname: x\n---\nUse {{{{{word}}}}}.", "x.prompty").rubric.needs == ("source_context",)


def test_windows_line_ends_and_a_byte_order_mark_change_nothing():
    assert from_prompty("\ufeff" + REAL.replace("\n", "\r\n"), "j.prompty") == from_prompty(REAL, "j.prompty")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("just text", "is it a prompty file?"),
        ("", "is it a prompty file?"),
        ("---\nname: x\n", "no closing"),
        ("---\nname: x\n---\n\n", "no prompt"),
        ("---\nname: x\n---\nsystem:\n{% for a in b %}{{a}}{% endfor %}", "template logic"),
        ("---\nname: x\n---\nsystem:\n{{#each b}}{{a}}{{/each}}", "template logic"),
        ("---\nname: '!!'\n---\nsystem:\nhello", "no name can be derived from it"),
        ("---\n- a\n---\nsystem:\nhello", "must be keys with values"),
        ("---\na: [\n---\nsystem:\nhello", "x.prompty:"),
    ],
)
def test_what_is_no_prompty_file_is_refused_with_a_sentence(text, part):
    with pytest.raises(ValueError, match=r"x\.prompty") as error:
        from_prompty(text, "x.prompty")
    assert part in str(error.value)


@pytest.mark.parametrize("name", ["true", "123", "1-5", "null", "a: b", "x\n---\ny", 'quo"te', "ünïcode", "-"])
def test_any_name_stays_a_name(name):
    try:
        made = from_prompty("---\ndescription: \"d: 'e' \\u0007\"\n---\nhello", "x.prompty", name=name)
    except ValueError as error:
        assert name == "-" and "no name" in str(error)
    else:
        assert parse_rubric(made.text, made.rubric.source).name == made.rubric.name


@given(
    st.text()
    | st.lists(
        st.sampled_from(
            ["---", "system:", "user:", "  x: 1", "{{query}}", "{% if %}", "name: a", "text", "{{", "}}", ""]
        )
    ).map("\n".join)
)
def test_any_text_is_a_rubric_or_a_sentence(text):
    try:
        assert isinstance(from_prompty(text, "x.prompty").rubric, Rubric)
    except ValueError as error:
        assert str(error).startswith(("x.prompty", "x.md"))
