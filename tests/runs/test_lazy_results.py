"""Results that stay on the disk: the same as those read at once, whatever is asked for."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from results_made import a_result, a_run
from waza.errors import StoreError
from waza.runs.outcomes import outcomes_of
from waza.runs.store import JOURNAL, RunFolder, open_run, read_run
from waza.runs.summary import summarize, summarize_tasks


@pytest.fixture
def folder(tmp_path):
    with RunFolder.create(tmp_path / "runs", a_run([], tasks=["b", "a"])) as made:
        for task in ("a", "b", "a"):
            made.append(a_result(task, output=f"{task} café \n"))
        made.append(a_result("b", trial=2, status="failed"))
    return made.path


def test_they_equal_those_that_are_read_at_once(folder):
    lazy, whole = open_run(folder), read_run(folder)
    assert list(lazy.results) == whole.results
    assert [lazy.results[place] for place in (0, -1)] == [whole.results[0], whole.results[-1]]
    assert lazy.results[1:] == whole.results[1:]
    assert len(lazy.results) == 3


def test_numbers_are_the_same_without_reading_again(folder):
    lazy, whole = open_run(folder), read_run(folder)
    assert outcomes_of(lazy.results) == outcomes_of(whole.results)
    (folder / JOURNAL).unlink()
    assert (summarize(lazy), summarize_tasks(lazy)) == (summarize(whole), summarize_tasks(whole))


def test_a_journal_that_is_gone_or_changed_is_told(folder):
    run = open_run(folder)
    journal = folder / JOURNAL
    content = journal.read_bytes()
    journal.write_bytes(content.replace(b"caf", b"cuf"))
    with pytest.raises(StoreError, match="changed while it was read"):
        list(run.results)
    journal.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        run.results[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_what_a_damaged_journal_still_holds_is_read_alike(folder, data):
    journal = folder / JOURNAL
    content = journal.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    try:
        journal.write_bytes(content[:place] + bytes([data.draw(st.integers(0, 255))]) + content[place + 1 :])
        assert list(open_run(folder).results) == read_run(folder).results
    finally:
        journal.write_bytes(content)
