"""Facts about grader types are stored with a run; runs that do not have them are read by a table."""

import waza
from waza.graders.base import GRADERS
from waza.model import StoredSuite
from waza.runs.grader_facts import grader_facts, has_fact, stored_grader_facts
from waza.runs.store import open_run

SUITE = """
config: {executor: mock}
graders:
  - {type: tool_calls, name: careful, config: {max_calls: 3}}
  - {type: human, name: polite, config: {instructions: Is it polite?}}
tasks: [{id: a, prompt: x, mock: {output: hi, tool_events: []}}]
"""


def test_a_stored_run_has_the_facts_of_its_graders(tmp_path):
    (tmp_path / "eval.yaml").write_text(SUITE)
    run = waza.run(tmp_path / "eval.yaml", runs=tmp_path / "runs")
    [folder] = (tmp_path / "runs").glob("2*")
    stored = open_run(folder).spec["grader_facts"]
    assert stored == {"human": ["asks_people"], "tool_calls": ["checks_behavior"]} == run.spec["grader_facts"]


def test_the_stored_facts_decide_where_a_run_has_them():
    facts = stored_grader_facts(StoredSuite(grader_facts={"of_a_plug_in": ["checks_behavior"]}))
    assert has_fact(facts, "of_a_plug_in", "checks_behavior") and not has_fact(facts, "tool_calls", "checks_behavior")
    assert has_fact(stored_grader_facts(StoredSuite()), "tool_calls", "checks_behavior")


def test_the_table_for_older_runs_is_what_the_classes_say():
    """Types added since store their facts with the run and need no entry."""
    older = {kind: [*facts] for kind, facts in sorted(stored_grader_facts(StoredSuite()).items())}
    assert grader_facts((kind, GRADERS.load(kind)) for kind in older) == older
