"""`waza check` on skills: what the agentskills specification refuses, links that lead nowhere, size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waza.cli import run_command
from waza.suites.skills import estimated_tokens, not_for_phrases, skill_problems

GOOD = (
    "Turns CSV files into short reports with totals and charts, for people who do not use spreadsheets at all. "
    'USE FOR: "make a report from this csv", "sum up the table". DO NOT USE FOR: "draw a picture".'
)


def a_skill(folder, matter, body="# Title\nDo it.\n", name="csv-report"):
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "SKILL.md").write_text(f"---\n{matter}\n---\n{body}")
    return place


def front(**keys):
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in keys.items())


def told(folder):
    return [f"{problem.severity}:{problem.line}: {problem.message}" for problem in skill_problems(folder)]


def errors(folder):
    return [problem.message for problem in skill_problems(folder) if problem.severity == "error"]


def test_a_good_skill_has_no_problems(tmp_path):
    matter = front(
        name="csv-report",
        description=GOOD,
        license="MIT",
        compatibility="Needs Python",
        metadata={"author": "us", "version": "1.0"},
        **{"allowed-tools": "Bash Read"},
    )
    body = "# Title\n[a](references/a.md) [b](references/a.md#part) [web](https://example.com) [here](#title)\n"
    place = a_skill(tmp_path, matter, body)
    (place / "references").mkdir()
    (place / "references/a.md").write_text("x")
    assert told(place) == []


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("# No front matter\n", "begins without front matter"),
        ("---\nname: a\n", "never closed"),
        ("---\n- a\n---\n", "the front matter is a list"),
        ("---\nname: [\n---\n", "SKILL.md"),
        ("---\nname: a\nname: b\n---\n", "name"),
        ("", "begins without front matter"),
    ],
)
def test_a_file_without_usable_front_matter_is_an_error(tmp_path, text, fact):
    place = tmp_path / "a"
    place.mkdir()
    (place / "SKILL.md").write_text(text)
    [problem] = skill_problems(place)
    assert problem.severity == "error"
    assert fact in str(problem)


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("CSV-report", "lower-case letters"),
        ("csv report", "lower-case letters"),
        ("-csv", "begin or end with a hyphen"),
        ("csv-", "begin or end with a hyphen"),
        ("csv--report", "two in a row"),
        ("a" * 65, "at most 64"),
        ("other", "is not the name of its folder, 'csv-report'"),
        ("", "a text is needed"),
        (3, "a text is needed, found the number 3"),
    ],
)
def test_names_follow_the_specification(tmp_path, name, fact):
    assert any(fact in message for message in errors(a_skill(tmp_path, front(name=name, description=GOOD))))


@pytest.mark.parametrize(
    ("description", "fact"),
    [
        ("x" * 1025, "error:3: has 1025 characters; at most 1024"),
        ("", "error:3: a text is needed"),
        ("  ", "error:3: a text is needed"),
        ("Makes reports.", "warning:3: does not say when to use the skill"),
        ("Makes reports. USE FOR: reports.", "note:3: does not say when to leave it"),
        ("Makes reports. Use when asked.", "note:3: has 30 characters"),
        ("Makes <reports>. Use when asked.", "warning:3: has angle brackets"),
        ("USE FOR: reports, Sums. DO NOT USE FOR: sums.", "error:3: 'sums' is under `USE FOR:` and under"),
    ],
)
def test_descriptions_are_looked_at_by_length_and_by_what_they_say(tmp_path, description, fact):
    place = a_skill(tmp_path, front(name="csv-report", description=description))
    assert any(line.startswith(fact) for line in told(place)), told(place)


@pytest.mark.parametrize("words", ["Use for tables", "Use this skill when asked", "WHEN: asked"])
def test_other_ways_to_say_when_are_understood(tmp_path, words):
    description = f"{'Makes reports of any kind. ' * 6}{words}. Do not use for drawings."
    assert told(a_skill(tmp_path, front(name="csv-report", description=description))) == []


def test_saying_only_what_it_is_not_for_is_not_saying_when(tmp_path):
    place = a_skill(tmp_path, front(name="csv-report", description="Makes reports. Do not use for drawings."))
    assert any("does not say when to use" in line for line in told(place))


def test_the_longest_name_and_description_are_allowed(tmp_path):
    name = "a" * 64
    assert errors(a_skill(tmp_path, front(name=name, description="x" * 1024), name=name)) == []


@pytest.mark.parametrize(
    ("keys", "fact"),
    [
        ({"descripton": "x"}, "error:4: unknown key 'descripton'; did you mean 'description'?"),
        ({"model": "x"}, "note:4: 'model' is not in the agentskills specification"),
        ({"colour": "x"}, "warning:4: unknown key 'colour'"),
        ({"compatibility": "x" * 501}, "error:4: has 501 characters; at most 500"),
        ({"license": 3}, "error:4: a text is needed"),
        ({"metadata": "x"}, "error:4: a mapping of keys is needed"),
        ({"metadata": {"version": 1.0}}, "warning:4: a text is needed, found the number 1.0; quote it"),
        ({"allowed-tools": ["Bash"]}, "warning:4: a list"),
        ({"allowed-tools": 3}, "error:4: a text is needed"),
    ],
)
def test_other_keys_are_looked_at_too(tmp_path, keys, fact):
    place = a_skill(tmp_path, front(name="csv-report", description=GOOD, **keys))
    assert any(line.startswith(fact) for line in told(place)), told(place)


def test_missing_keys_are_named_once(tmp_path):
    assert errors(a_skill(tmp_path, "license: MIT")) == [
        "'name' is missing in the front matter",
        "'description' is missing in the front matter",
    ]


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        ("# T\n\n[a](no.md)\n", "error:7: the link to no.md leads nowhere"),
        ("![a](no.png)\n", "error:5: the link to no.png leads nowhere"),
        ("[a]: no.md\n[a]\n", "error:5: the link to no.md leads nowhere"),
        ("[a](../other/SKILL.md)\n", "error:5: the link to ../other/SKILL.md leaves the skill's folder"),
        ("[a](/etc/passwd)\n", "error:5: the link to /etc/passwd leaves the skill's folder"),
        ("[a](out/b.md)\n", "error:5: the link to out/b.md leaves the skill's folder"),
    ],
)
def test_links_that_lead_nowhere_or_outside_are_errors(tmp_path, body, fact):
    place = a_skill(tmp_path, front(name="csv-report", description=GOOD), body)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/b.md").write_text("x")
    (place / "out").symlink_to(tmp_path / "elsewhere")
    assert any(line.startswith(fact) for line in told(place)), told(place)


def test_links_in_code_are_no_links(tmp_path):
    body = "# T\n```md\n[a](no.md)\n```\nand `[b](no.md)` too\n~~~\n[c](no.md)\n~~~\n"
    assert told(a_skill(tmp_path, front(name="csv-report", description=GOOD), body)) == []


def test_a_large_or_empty_body_is_told(tmp_path):
    matter = front(name="csv-report", description=GOOD)
    [large] = told(a_skill(tmp_path, matter, "x" * 20_004))
    assert large.startswith("warning:5: the body has about 5,001 tokens (estimated, a token for every 4 bytes)")
    [long] = told(a_skill(tmp_path, matter, "x\n" * 501))
    assert "in 501 lines" in long
    assert errors(a_skill(tmp_path, matter, "\n")) == ["has no instructions below the front matter"]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_the_estimate_never_says_nothing_of_something(text):
    assert (estimated_tokens(text) == 0) == (text == "")
    assert estimated_tokens(text + "abcd") == estimated_tokens(text) + 1


@given(st.binary(max_size=300))
def test_no_file_breaks_the_lint(tmp_path_factory, data):
    place = tmp_path_factory.mktemp("a") / "a"
    place.mkdir()
    (place / "SKILL.md").write_bytes(b"---\n" + data)
    assert all(problem.message for problem in skill_problems(place))


def test_phrases_it_is_not_for():
    assert not_for_phrases('USE FOR: a. DO NOT USE FOR: "b", "c d". INVOKES: x') == ["b", "c d"]
    assert not_for_phrases("DO NOT USE FOR: b, c (use d).") == ["b", "c"]
    assert not_for_phrases("USE FOR: a") == []


def test_check_ends_with_1_for_a_skill_and_with_2_for_a_suite(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    a_skill(tmp_path / "skills", front(name="csv-report", description=GOOD))
    assert run_command(["check"]) == 0
    assert "skills/csv-report/SKILL.md: ok, about 53 tokens to list, 4 to use (estimated)" in capsys.readouterr().out
    a_skill(tmp_path / ".github/skills", front(name="wrong", description=GOOD))
    assert run_command(["check"]) == 1
    assert run_command(["check", "skills"]) == 0
    assert run_command(["check", "skills/csv-report/SKILL.md", "-q"]) == 0
    capsys.readouterr()
    assert run_command(["check", "--json"]) == 1
    [problem] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert problem["file"] == ".github/skills/csv-report/SKILL.md"
    (tmp_path / "eval.yaml").write_text("tasks: []\n")
    assert run_command(["check"]) == 2


def test_strict_takes_warnings_for_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a_skill(tmp_path, front(name="csv-report", description=GOOD, colour="x"))
    assert run_command(["check", "-q"]) == 0
    assert run_command(["check", "-q", "--strict"]) == 1


def test_a_suites_skill_is_looked_at_with_the_suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".waza.yaml").write_text("{}\n")
    a_skill(tmp_path / "skills", front(name="wrong", description=GOOD))
    (tmp_path / "evals").mkdir()
    suite = "skill: csv-report\ntasks: [{id: a, prompt: x, expected: {output_contains: [x]}}]\n"
    (tmp_path / "evals/eval.yaml").write_text(suite)
    assert run_command(["check", "evals", "-q"]) == 1


def test_a_folder_with_neither_is_a_wrong_call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["check"]) == 2
    assert "no eval.yaml in this folder or below" in capsys.readouterr().err
