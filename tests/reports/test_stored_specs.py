"""Whatever is in `spec` of a run.json: a report, or one sentence that names the file, never a traceback."""

import pytest
from hypothesis import given, settings
from odd_specs import ODD, WHOLE, a_stored_run

from waza.analysis.comparison import compare
from waza.errors import StoreError
from waza.reports.base import REPORTS
from waza.runs.store import open_run, summary_of


def render_all(folder):
    """Everything the reading commands make of a run."""
    run = open_run(folder)
    made = [b"".join(REPORTS.load(name)().render(run)) for name in REPORTS.built_in()]
    compare(run, run)
    return made


def test_the_whole_spec_is_read_by_every_report(tmp_path):
    folder = a_stored_run(tmp_path, WHOLE)
    assert all(render_all(folder))
    assert summary_of(folder).problem == ""
    assert len(open_run(folder).triggers) == 1


@given(spec=ODD)
@settings(max_examples=100, deadline=None)
def test_any_json_as_spec_gives_reports_or_one_sentence(tmp_path_factory, spec):
    folder = a_stored_run(tmp_path_factory.mktemp("odd"), spec)
    problem = summary_of(folder).problem
    if problem:
        assert problem.startswith(f"{folder / 'run.json'}: is damaged: ")
        with pytest.raises(StoreError):
            render_all(folder)
    else:
        render_all(folder)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"config": 3}, "Expected `object | null`, got `int` - at `$.spec.config`"),
        ({"tasks": "abc"}, "Expected `array | null`, got `str` - at `$.spec.tasks`"),
        ({"tasks": [{"name": "no id"}]}, "Object missing required field `id` - at `$.spec.tasks[0]`"),
        ({"config": {"trials_per_task": 10**15}}, "Expected `int` <= 1000000 - at `$.spec.config.trials_per_task`"),
    ],
)
def test_the_sentence_names_the_file_and_the_place_in_it(tmp_path, spec, words):
    folder = a_stored_run(tmp_path, spec)
    sentence = f"{folder / 'run.json'}: is damaged: {words}; the results in journal.jsonl are another file"
    assert summary_of(folder).problem == sentence
