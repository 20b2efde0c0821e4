"""Rubric files: what is a rubric and what is refused, the built-in ones, their goldens, and the lock."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from waza.errors import UsageError
from waza.files.paths import SpecFolder
from waza.graders.prompt import PromptGrader
from waza.judges.rubrics import (
    VERDICT_TOOLS,
    Golden,
    Rubric,
    find_rubric,
    golden_trace,
    groups,
    names,
    parse_rubric,
    ref_kind,
    rubric_text,
    validate,
)
from waza.judges.rubrics.rubric import LockEntry, lock_problem, lock_text, locked, read_lock
from waza.judges.scripted import ScriptedJudge
from waza.runner.judge_checks import Opinion, agreement, opinion_of, oracle, put_goldens

ROOT = Path(__file__).parent.parent.parent
SHIPPED = ROOT / "src" / "waza" / "judges" / "rubrics"
CASES = [json.loads(line) for line in (ROOT / "tests/data/conformance/helpers_rubrics.jsonl").read_text().splitlines()]
ALL = [(group, name) for group in groups() for name in names(group)]
RUBRIC = """\
---
name: short
version: 1.0.0
scale: pass-fail
description: Whether it is short.
---

Is it short? Then call `set_waza_grade_pass`, otherwise `set_waza_grade_fail`.
"""


def outcome_of(case):
    """What our functions say to a conformance line, in its words."""
    kind, given_input = case["kind"], case["input"]
    if kind == "rubric_names":
        return names()
    if kind == "rubric_ref_kind":
        try:
            return ref_kind(given_input)
        except ValueError:
            return "error"
    if kind == "rubric_parse":
        try:
            parse_rubric(given_input, "r.md")
        except ValueError as error:
            return str(error)
        return ""
    goldens = tuple(Golden(**golden) for golden in given_input.pop("goldens", []))
    return "; ".join(validate(Rubric(**given_input, goldens=goldens)))


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_conformance_lines_hold(case):
    found, expected = outcome_of(case), case["expected"]
    if isinstance(expected, dict):
        assert expected.get("error_contains", "") in found
        assert bool(found) is not expected.get("ok", False)
    else:
        assert found == expected


def refusal(text, source="r.md"):
    with pytest.raises(ValueError) as error:
        parse_rubric(text, source)
    return str(error.value)


def test_all_mistakes_are_told_at_once_each_with_its_line():
    told = refusal("---\nnmae: x\nversion: 1.0\nscale: pass-fail\ngoldens: [{name: 1, expected: pass}]\n---\nbody")
    assert "r.md:2: unknown key 'nmae'; did you mean 'name'?" in told
    assert "r.md:3: version must be a text, found 1.0; quote it" in told
    assert "r.md:5: goldens[0].name must be a text, found 1; quote it" in told


def test_several_missing_fields_are_told_together():
    told = refusal("---\nname: Not_Kebab\nversion: soon\n---\nbody")
    for part in ("kebab-case", "semver", "scale is required", "description is required"):
        assert part in told


@pytest.mark.parametrize(
    ("front", "part"),
    [
        ("needs: [tool_event]", "needs: unknown evidence 'tool_event'; did you mean 'tool_events'?"),
        ("needs: files", "needs must be a list"),
        ("pass_at: 4.5", "pass_at must be a whole number"),
        ("pass_at: 3", "pass_at goes with scale 1-5"),
        ("goldens: {a: 1}", "goldens must be a list"),
        ("goldens: [x]", "goldens[0] must have keys"),
        ("goldens: [{name: a, output: o, expect: pass}]", "did you mean 'expected'?"),
        ("goldens: [{name: a, output: o, expected: 4}]", "goldens[0].expected must be pass or fail"),
        ("goldens: [{name: a, output: o, expected: true}]", "goldens[0].expected must be pass, fail or a whole number"),
        ("goldens: [{name: a, output: o, expected: pass, tool_events: [{name: x}]}]", "goldens[0].tool_events"),
        (
            "goldens: [{name: a, output: o, expected: pass}, {name: a, output: p, expected: fail}]",
            "is that of goldens[0]",
        ),
        (
            "goldens: [{name: a, output: o, expected: pass}, {name: b, output: o, expected: fail}]",
            "shows the judge the same as goldens[0]",
        ),
        ("needs: [source_context]\ngoldens: [{name: a, output: o, expected: pass}]", "goldens[0].context is required"),
        ("needs: [tool_events]\ngoldens: [{name: a, output: o, expected: pass}]", "goldens[0].tool_events is required"),
        ("needs: [files]\ngoldens: [{name: a, output: o, expected: pass}]", "goldens[0].files is required"),
        (
            "goldens: [{name: a, output: o, expected: pass, files: [a]}]",
            "goldens[0].files: a mapping from path to text",
        ),
        ("goldens: [{name: a, output: o, expected: pass, files: {../a: b}}]", "goldens[0].files: '../a' leaves"),
        ("name: again", "is on line 2 already"),
    ],
)
def test_what_could_mislead_is_refused(front, part):
    assert part in refusal(RUBRIC.replace("\n---\n\n", f"\n{front}\n---\n\n"))


def test_a_pass_mark_that_cannot_decide_is_refused():
    graded = RUBRIC.replace("pass-fail", "1-5").replace("\n---\n\n", "\npass_at: {}\n---\n\n")
    assert parse_rubric(graded.format(5)).pass_at == 5
    for mark in (1, 6):
        assert "cannot both pass and fail" in refusal(graded.format(mark))


def test_a_version_is_short_enough_to_compare(tmp_path):
    assert "semver" in refusal(RUBRIC.replace("1.0.0", "v" + "9" * 5000))
    (tmp_path / "rubrics.lock").write_text(f'short: {{version: "{"9" * 5000}", sha256: "x"}}')
    with pytest.raises(ValueError, match="needs version and sha256"):
        read_lock(tmp_path)


def test_a_rubric_longer_than_a_judge_can_read_is_refused():
    assert "keep to" in refusal(RUBRIC + "x" * 500_001)


def test_line_ends_and_a_byte_order_mark_change_nothing():
    plain = parse_rubric(RUBRIC)
    assert parse_rubric("\ufeff" + RUBRIC.replace("\n", "\r\n")) == plain
    assert parse_rubric("\ufeff" + RUBRIC.replace("\n", "\r\n")).hash == plain.hash


def test_the_hash_changes_with_what_shapes_a_verdict_and_with_nothing_else():
    one = parse_rubric(RUBRIC)
    shaping = [replace(one, body="other"), replace(one, scale="1-5"), replace(one, needs=("files",))]
    shaping.append(replace(shaping[1], pass_at=3))
    assert len({rubric.hash for rubric in [one, *shaping]}) == 5
    golden = Golden(name="g", output="o", expected="pass")
    for same in (
        {"name": "other"},
        {"version": "2.0.0"},
        {"description": "x"},
        {"goldens": (golden,)},
        {"source": "p"},
    ):
        assert replace(one, **same).hash == one.hash


@given(
    st.text()
    | st.text(alphabet=list("-:\n abnscale[]{}'\"|>#&*!%@`1.5\r\t")).map(lambda text: f"---\n{text}\n---\nbody")
)
def test_any_text_is_a_rubric_or_a_sentence(text):
    try:
        assert isinstance(parse_rubric(text, "r.md"), Rubric)
    except ValueError as error:
        assert str(error).startswith("r.md")


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
NESTED = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
KEYS = ["name", "version", "scale", "description", "goldens", "needs", "pass_at"]


@given(st.dictionaries(st.sampled_from(KEYS), NESTED))
def test_any_front_matter_is_a_rubric_or_a_sentence(front):
    text = "---\n" + "\n".join(f"{key}: {json.dumps(value)}" for key, value in front.items()) + "\n---\nbody"
    try:
        assert isinstance(parse_rubric(text, "r.md"), Rubric)
    except ValueError as error:
        assert str(error).startswith("r.md")


def test_a_path_is_looked_up_beside_the_eval_file_then_at_the_root_and_never_outside(tmp_path):
    (tmp_path / "project/.git").mkdir(parents=True)
    suite = tmp_path / "project/evals"
    suite.mkdir()
    (tmp_path / "project/at-root.md").write_text(RUBRIC)
    (suite / "beside.md").write_text(RUBRIC)
    (tmp_path / "outside.md").write_text(RUBRIC)
    folder = SpecFolder(suite)
    assert find_rubric("./beside.md", folder).source == "./beside.md"
    assert find_rubric("at-root.md", folder).name == "short"
    for ref, part in [
        ("../../outside.md", "leaves the project"),
        ("~/outside.md", "leads out of the project"),
        ("gone.md", "is not there; looked next to the eval file or at the project's root"),
        ("relevence", "did you mean 'relevance'?"),
        (" ", "empty"),
        ("./", "cannot be read"),
    ]:
        with pytest.raises(ValueError, match=re.escape(part)):
            find_rubric(ref, folder)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "r.md").write_bytes(b"---\n\xff\n---\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        find_rubric("r.md", SpecFolder(tmp_path))


@pytest.mark.parametrize(("group", "name"), ALL)
def test_a_built_in_rubric_is_named_like_its_file_and_says_how_to_give_the_verdict(group, name):
    rubric = find_rubric(name, SpecFolder())
    assert (rubric.name, rubric.source) == (name, "builtin")
    assert name.endswith("-1-5") == (rubric.scale == "1-5")
    last = rubric.body[rubric.body.rindex("\n## Verdict") :]
    for tool in VERDICT_TOOLS[rubric.scale]:
        assert f"`{tool}`" in last
    other = {tool for scale, tools in VERDICT_TOOLS.items() if scale != rubric.scale for tool in tools}
    assert not any(tool in rubric.body for tool in other)
    assert (
        "speaks to you is material to judge" in " ".join(rubric.body.split()) or "tell you how to grade" in rubric.body
    )


@pytest.mark.parametrize(("group", "name"), ALL)
def test_a_built_in_rubric_has_goldens_on_both_sides(group, name):
    rubric = find_rubric(name, SpecFolder())
    sides = [rubric.passes(golden.expected) for golden in rubric.goldens]
    assert len(sides) >= (8 if group == "core" else 4)
    assert min(sides.count(True), sides.count(False)) >= (3 if group == "core" else 1)
    if rubric.scale == "1-5":
        assert {golden.expected for golden in rubric.goldens} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("group", "name"), ALL)
def test_every_golden_comes_out_as_expected_when_the_judge_says_so(group, name):
    rubric = find_rubric(name, SpecFolder())
    opinions = put_goldens(rubric, PromptGrader(rubric=name), oracle)
    assert [opinion.agrees for opinion in opinions] == [True] * len(rubric.goldens), opinions


@pytest.mark.parametrize(("group", "name"), ALL)
def test_no_golden_comes_out_as_expected_when_the_judge_says_the_contrary(group, name):
    rubric = find_rubric(name, SpecFolder())

    def contrary(rubric, golden):
        other = "fail" if rubric.passes(golden.expected) else "pass"
        return oracle(rubric, replace(golden, expected=other))

    opinions = put_goldens(rubric, PromptGrader(rubric=name), contrary)
    assert [opinion.agrees for opinion in opinions] == [False] * len(rubric.goldens), opinions


def test_a_judge_that_gives_no_verdict_leaves_a_golden_undecided():
    rubric = find_rubric("helpfulness", SpecFolder())
    opinions = put_goldens(rubric, PromptGrader(rubric="helpfulness"), lambda *_: ScriptedJudge([]))
    found = agreement(opinions)
    assert (found.agreed, found.decided, found.undecided, found.interval) == (0, 0, 11, None)


def test_the_judge_is_shown_what_a_golden_says():
    rubric = find_rubric("tool-call-accuracy", SpecFolder())
    trace = golden_trace(rubric.goldens[1])
    assert trace.tool_events[0].args == {"city": "New York"}
    grounded = find_rubric("groundedness", SpecFolder())
    assert "1969" in golden_trace(grounded.goldens[0]).extra["source_context"]


def test_a_golden_may_hold_the_files_a_judge_needs(tmp_path):
    front = "needs: [files]\ngoldens: [{name: g, output: done, expected: pass, files: {b.txt: two, a/x.txt: one}}]"
    (tmp_path / "r.md").write_text(RUBRIC.replace("\n---\n\n", f"\n{front}\n---\n\n"))
    rubric = find_rubric("r.md", SpecFolder(tmp_path))
    files = golden_trace(rubric.goldens[0]).files
    assert list(files.paths()) == ["a/x.txt", "b.txt"]
    assert (files.read("b.txt"), files.kind("b.txt"), files.kind("c")) == (b"two", "file", "absent")
    judge = ScriptedJudge([{"when": "=== a/x.txt\none", "tool_calls": [{"name": "set_waza_grade_pass"}]}])
    grader = PromptGrader(rubric="r.md", folder=SpecFolder(tmp_path))
    assert [opinion.agrees for opinion in put_goldens(rubric, grader, lambda *_: judge)] == [True]


@pytest.mark.parametrize(
    ("expected", "said", "agrees"),
    [(5, 4, True), (5, 5, True), (4, 3, False), (1, 2, True), (1, 3, False), ("pass", 4, True), ("fail", 4, False)],
)
def test_a_score_agrees_on_the_same_side_and_within_one_step(expected, said, agrees):
    rubric = find_rubric("relevance-1-5", SpecFolder())
    golden = Golden(name="g", output="o", expected=expected)
    judge = oracle(rubric, replace(golden, expected=said))
    grade = PromptGrader(rubric="relevance-1-5").grade(golden_trace(golden), judge=judge)
    assert opinion_of(rubric, golden, grade) == Opinion(
        golden="g", expected=expected, said=said, agrees=agrees, reason=grade.feedback
    )


@pytest.mark.parametrize("folder", [SHIPPED, SHIPPED / "azure"], ids=["core", "azure"])
def test_no_built_in_rubric_changed_without_a_raised_version(folder):
    entries = read_lock(folder)
    rubrics = [find_rubric(file.stem, SpecFolder()) for file in folder.glob("*.md")]
    assert set(entries) == {rubric.name for rubric in rubrics}
    assert [problem for rubric in rubrics if (problem := lock_problem(rubric, entries))] == []
    assert "raise the version" in lock_problem(replace(rubrics[0], body=rubrics[0].body + " Be kind."), entries)


def lock(version, body="body"):
    return {"short": LockEntry(version, replace(parse_rubric(RUBRIC), body=body).hash)}


@pytest.mark.parametrize(
    ("old", "new", "same_text", "part"),
    [
        ("1.0.0", "1.0.0", True, ""),
        ("1.0.0", "1.0.0", False, "raise the version, then run `waza rubric lock`"),
        ("1.0.0", "0.9.0", False, "raise the version"),
        ("1.0.0", "0.9.0", True, "went back from 1.0.0 to 0.9.0"),
        ("1.0.0", "1.0.1", False, "has 1.0.0; run `waza rubric lock`"),
        ("1.0.0", "1.0.1", True, "has 1.0.0; run `waza rubric lock`"),
        ("1.9.0", "1.10.0", False, "has 1.9.0"),
        ("1.0.0-rc.2", "1.0.0-rc.10", False, "has 1.0.0-rc.2"),
        ("1.0.0-rc.1", "1.0.0", False, "has 1.0.0-rc.1"),
        ("1.0.0", "1.0.0-rc.1", False, "raise the version"),
        ("v1.2", "v1.3", False, "has v1.2"),
        ("1.0.0+a", "1.0.0+b", False, "raise the version"),
    ],
)
def test_the_lock_notices_a_changed_text_and_says_what_to_do(old, new, same_text, part):
    rubric = replace(parse_rubric(RUBRIC), version=new, body="body" if same_text else "other body")
    told = lock_problem(rubric, lock(old))
    assert part in told
    assert bool(told) is bool(part)


def test_locking_refuses_a_changed_text_unless_told_that_nothing_used_it(tmp_path):
    rubric = parse_rubric(RUBRIC)
    (tmp_path / "rubrics.lock").write_text(lock_text(locked(tmp_path, [rubric])))
    changed = replace(rubric, body="other")
    with pytest.raises(UsageError, match=r"the text of short 1\.0\.0 changed; raise its version"):
        locked(tmp_path, [changed])
    assert locked(tmp_path, [changed], redo=True) == {"short": LockEntry("1.0.0", changed.hash)}
    assert locked(tmp_path, [replace(changed, version="1.1.0")])["short"].version == "1.1.0"
    with pytest.raises(UsageError, match="another rubric in this folder is called short"):
        locked(tmp_path, [rubric, rubric])


@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8})?", fullmatch=True),
        st.tuples(
            st.from_regex(r"v?[1-9][0-9]{0,3}(\.[0-9]{1,3}){0,2}", fullmatch=True),
            st.text("0123456789abcdef", min_size=1),
        ),
        max_size=5,
    )
)
def test_a_written_lock_reads_back(tmp_path_factory, entries):
    folder = tmp_path_factory.mktemp("lock")
    made = {name: LockEntry(*entry) for name, entry in entries.items()}
    (folder / "rubrics.lock").write_text(lock_text(made))
    assert read_lock(folder) == made


@pytest.mark.parametrize("text", ["[1]", "a: 1", "a: {version: 1, sha256: x}", "a: {version: '1'}", "a: [", "{{"])
def test_a_broken_lock_is_told_with_its_remedy(tmp_path, text):
    (tmp_path / "rubrics.lock").write_text(text)
    with pytest.raises(ValueError, match=r"rubrics\.lock.*waza rubric lock"):
        read_lock(tmp_path)


def rows(page):
    """The cells of the first table of a page, without its head."""
    lines = [line for line in (ROOT / "docs/guide" / page).read_text().split("\n") if line.startswith("|")]
    first = next(index for index, line in enumerate(lines) if line.startswith("|---"))
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[first + 1 :]]


def test_every_row_of_the_azure_page_is_a_rubric_that_passes_its_goldens():
    shown = set()
    for evaluator, plain, graded, _, rule in rows("azure.md"):
        assert evaluator.endswith("Evaluator") and rule
        for name in filter(None, (plain, graded)):
            rubric = find_rubric(name, SpecFolder())
            opinions = put_goldens(rubric, PromptGrader(rubric=name), oracle)
            assert opinions and all(opinion.agrees for opinion in opinions)
            shown.add(name)
        assert "low severity" in rule or "Pass rule" in rubric_text(plain, SpecFolder())
    assert shown == {*names("azure"), "groundedness"}


def test_the_rubrics_page_names_the_built_in_ones():
    shown = [row[0] for row in rows("rubrics.md")]
    assert shown[: len(names())] == names()
