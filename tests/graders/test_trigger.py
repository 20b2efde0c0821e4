"""The `trigger` grader: a prompt against the words of a SKILL.md, and which SKILL.md files are refused."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_cases import cases, holds, lines

import waza
from waza.graders.tool_constraint import allows
from waza.skills import parse_skill, use_for_phrases, words

SKILL = """---
name: cloud-ship
description: "Ship services. USE FOR: ship to cloud, publish api. DO NOT USE FOR: compose poetry."
---
Guides rollout of backend services.
"""


@pytest.mark.parametrize("case", cases("trigger"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


@pytest.mark.parametrize("case", lines("helpers_tools.jsonl"), ids=lambda case: case["id"])
def test_use_for_phrases_are_those_of_the_conformance_cases(case):
    if case["kind"] == "use_for_phrases":
        assert use_for_phrases(case["input"]) == case["expected"]


def load(folder, content=SKILL, path="skill/SKILL.md", **config):
    if content is not None:
        (folder / "skill").mkdir(exist_ok=True)
        (folder / "skill" / "SKILL.md").write_text(content, encoding="utf-8")
    spec = {"type": "trigger", "config": {"skill_path": path, "mode": "positive"} | config}
    return waza.load_grader(spec, base_dir=folder)


def asked(grader, prompt):
    return grader.grade(waza.Trace(input=prompt, output=""))


def test_a_folder_stands_for_the_skill_file_in_it(tmp_path):
    assert asked(load(tmp_path, path="skill"), "ship to cloud").score == 1.0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not there"),
        ("---\nname: x\n", "never closed"),
        ("---\n- a\n---\nbody", "not a plain mapping"),
        ("---\nword\n---\nbody", "not a plain mapping"),
        ("---\nname: [\n---\nbody", "not YAML"),
        ("---\nname: " + "[" * 500_000 + "\n---\nbody", "not a plain mapping"),
        ("word " * 300_000, "more than 1000000 bytes"),
        ("---\nname: ab\n---\nto it", "no words"),
        ("", "no words"),
    ],
)
def test_a_skill_that_cannot_be_read_is_refused_when_loaded(tmp_path, content, says):
    with pytest.raises(waza.SpecError, match=says):
        load(tmp_path, content)


def test_a_path_that_leaves_the_project_is_refused(tmp_path):
    (tmp_path / "SKILL.md").write_text(SKILL)
    inner = tmp_path / "project"
    inner.mkdir()
    (inner / ".waza.yaml").write_text("")
    (inner / "link.md").symlink_to(tmp_path / "SKILL.md")
    for path in ("../SKILL.md", str(tmp_path / "SKILL.md"), "link.md"):
        with pytest.raises(waza.SpecError, match="leaves the project"):
            load(inner, None, path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "SKILL.md")
    with pytest.raises(waza.SpecError, match="not a file"):
        load(tmp_path, None, "SKILL.md")


def test_a_threshold_that_every_prompt_reaches_is_refused(tmp_path):
    with pytest.raises(waza.SpecError, match="could not fail"):
        load(tmp_path, threshold=0)
    assert asked(load(tmp_path, threshold=0, mode="negative"), "anything").status == "failed"


def test_the_details_say_which_words_matched(tmp_path):
    result = asked(load(tmp_path, threshold=0.9), "Ship my backend parser now")
    assert result.details["matched_keywords"] == ["ship", "backend"]
    assert result.details["matched_count"] == 2 and result.details["phrase_score"] == pytest.approx(1 / 2)
    assert (result.status, result.score) == ("failed", 0.5)
    assert result.feedback == "Relevance 0.50 is not at least the threshold 0.90"


def test_a_right_silence_scores_for_the_composite(tmp_path):
    grader = load(tmp_path, mode=" Negative ")
    assert (asked(grader, "paint a landscape").score, asked(grader, "ship to cloud").score) == (1.0, 0.0)


def test_names_that_look_like_other_yaml_types_stay_texts():
    skill = parse_skill("---\nname: no\ndescription: 12:30\n---\nbody\n---\nmore")
    assert (skill.name, skill.description, skill.body) == ("no", "12:30", "body\n---\nmore")


def test_keys_of_other_shapes_do_not_disturb_name_and_description():
    matter = (
        "tags: [a, {b: c}]\n? [x, y]\n: z\nname: n\nmeta:\n  name: inner\n? k\n: [v]\ndescription: >\n  two\n  lines"
    )
    skill = parse_skill(f"---\n{matter}\n---\n")
    assert (skill.name, skill.description) == ("n", "two lines")
    assert parse_skill("---\n---\nbody").body == "body"


def test_words_split_at_everything_but_letters_and_digits_and_count_bytes():
    assert words("The ship-to-cloud, V2x a1 日本 é ör!") == ["ship", "cloud", "v2x", "日本", "ör"]


@settings(max_examples=50, deadline=None)
@given(st.text(), st.sampled_from(["positive", "negative"]))
def test_any_prompt_gets_a_verdict_and_a_score_from_0_to_1(tmp_path_factory, prompt, mode):
    folder = tmp_path_factory.getbasetemp() / "trigger"
    folder.mkdir(exist_ok=True)
    result = asked(load(folder, mode=mode), prompt)
    assert result.status in ("passed", "failed") and 0.0 <= result.score <= 1.0


@settings(deadline=None)
@given(st.text(), st.text())
def test_any_text_is_a_skill_or_is_refused(before, after):
    for text in (before, f"---\n{before}\n---\n{after}"):
        try:
            skill = parse_skill(text)
        except ValueError:
            continue
        assert 0.0 <= skill.relevance(after).score <= 1.0


def test_case_is_folded_character_by_character_in_phrases_words_and_tool_names():
    skill = parse_skill('---\nname: s\ndescription: "USE FOR: İzmir turu, ΟΔΟΣ"\n---\n')
    assert skill.relevance("plan an izmir TURU").phrase_score == 1.0
    assert skill.relevance("ΟΔΟΣΗΜΟ").phrase_score == 1.0
    assert words("İZMİR ΟΔΟΣ") == ["izmir", "οδοσ"]
    assert allows("ΟΔΟΣ", "οδος")
