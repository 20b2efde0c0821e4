"""The skill under test: where it is found, and that results made with another version of it are not taken for these."""

import pytest

from waza.engines._agent import AgentEngine
from waza.errors import SpecError
from waza.suites.load import load_spec

SUITE = """
skill: report
config: {executor: claude-code, model: m}
tasks: [{id: a, prompt: x, expected: {output_contains: [x]}}]
"""


def project(root, skill="skills/report", suite="evals/report"):
    (root / ".waza.yaml").write_text("{}")
    for folder in (skill, suite):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / skill / "SKILL.md").write_text("---\nname: report\n---\nCount.\n")
    (root / suite / "eval.yaml").write_text(SUITE)
    return root / suite / "eval.yaml"


@pytest.mark.parametrize(
    ("skill", "suite"),
    [
        ("skills/report", "evals/report"),
        (".claude/skills/report", "evals"),
        (".github/skills/report", "evals"),
        ("report", "report/evals"),
        ("report", "report"),
    ],
)
def test_the_skill_under_test_reaches_the_engine(tmp_path, skill, suite):
    engine = load_spec(project(tmp_path, skill, suite)).engine()
    assert isinstance(engine, AgentEngine)
    assert engine.skills() == {"report": (tmp_path / skill).resolve()}


def test_an_engine_that_needs_the_skill_refuses_to_run_without(tmp_path):
    file = project(tmp_path, skill="elsewhere/report")
    spec = load_spec(file)
    assert any("skill 'report' was not found" in str(note) for note in spec.notes)
    with pytest.raises(SpecError, match=r"skill: skill 'report' was not found"):
        spec.engine()
    spec.engine("mock")


def test_an_edited_skill_makes_other_results_and_an_edited_suite_beside_it_does_not(tmp_path):
    file = project(tmp_path, "report", "report/evals")
    before = load_spec(file).as_data()
    (tmp_path / "report/evals/notes.txt").write_text("nothing of the skill")
    assert load_spec(file).as_data() == before
    (tmp_path / "report/scripts").mkdir()
    (tmp_path / "report/scripts/count.sh").write_text("wc -l")
    after = load_spec(file).as_data()
    assert after["config"]["skill_content"] != before["config"]["skill_content"]
