"""Events of a running run: from the journal, each once, and none is a line of an agent's."""

import http.client
import json

import pytest
from hostile import STRINGS
from msgspec.structs import replace
from runs_made import a_trial, plan

from waza.runs.journal import Note
from waza.runs.store import RunFolder, open_run
from waza.runs.summary import summarize


@pytest.fixture
def going(folder, site):
    """A run that is being written."""
    with RunFolder.create(folder / "x" / "runs", plan(tasks=70)) as made:
        made.append(a_trial("task-0000"))
        yield made


class Stream:
    """A connection on which events come."""

    def __init__(self, site, path, **headers):
        self.connection = http.client.HTTPConnection(site.host, timeout=30)
        self.connection.request("GET", path, headers={"Cookie": site.cookie} | headers)
        self.answer = self.connection.getresponse()

    def next(self):
        """The next event as name, number and data; None at the end."""
        lines = []
        while line := self.answer.readline().decode():
            if line == "\n" and lines and not lines[0].startswith(":"):
                fields = dict(one.split(": ", 1) for one in lines)
                return fields["event"], int(fields.get("id", 0)), json.loads(fields["data"])
            lines = [] if line == "\n" else [*lines, line.rstrip("\n")]
        return None

    def close(self):
        self.connection.close()


def test_results_are_sent_as_they_come_and_each_once(site, going):
    path = f"/runs/{going.path.name}/events"
    stream = Stream(site, path)
    assert stream.answer.getheader("content-type").startswith("text/event-stream")
    kind, _, data = stream.next()
    assert (kind, data["task"], data["done"], data["planned"]) == ("result", "task-0000", 1, 70)
    for number in (1, 2):
        going.append(a_trial(f"task-{number:04}", rate=1.0))
        kind, place, data = stream.next()
        assert (kind, data["task"], data["done"], data["status"]) == (
            "result",
            f"task-{number:04}",
            number + 1,
            "passed",
        )
    stream.close()
    going.append(Note(text="look here"))
    again = Stream(site, path, **{"Last-Event-ID": str(place)})
    assert again.next()[::2] == ("note", {"note": "look here"})
    going.append(a_trial("task-0001", seed=9, rate=0.0))
    kind, _, data = again.next()
    assert (kind, data["task"], data["done"], data["failed"]) == ("result", "task-0001", 3, 1)
    going.finish(summarize(open_run(going.path)))
    kinds = []
    while event := again.next():
        kinds.append(event[0])
    assert kinds == ["end", "over"]


def test_no_text_of_an_agent_begins_an_event_of_its_own(site, going):
    stream = Stream(site, f"/runs/{going.path.name}/events")
    stream.next()
    texts = [f"{text}\n\nevent: result\ndata: {{}}\n\n" for text in STRINGS]
    for number, text in enumerate(texts):
        going.append(replace(a_trial(f"task-{number:04}"), reason=text))
    seen = [stream.next() for _ in texts]
    assert [kind for kind, _, _ in seen] == ["result"] * 60
    assert [data["task"] for _, _, data in seen] == [f"task-{number:04}" for number in range(60)]
    stream.close()


def test_a_run_whose_process_is_gone_is_over(site, going):
    stream = Stream(site, f"/runs/{going.path.name}/events?from=999999999")
    going.close()
    assert stream.next()[0] == "over"
    assert stream.next() is None


@pytest.mark.parametrize("start", ["-1", "x", "²", "1e3", "", "99999999999999999999"])
def test_a_number_that_is_none_starts_at_the_beginning(site, going, start):
    stream = Stream(site, f"/runs/{going.path.name}/events?from={start.replace('²', '%C2%B2')}")
    assert stream.next()[0] == "result"
    stream.close()


def test_a_head_request_gets_no_events_and_no_run_no_stream(site, going):
    for path in ("/events", f"/runs/{going.path.name}/events"):
        status, headers, body = site.get(path, "HEAD")
        assert (status, body) == (200, "") and headers["content-type"].startswith("text/event-stream")
    assert site.get("/runs/none/events")[0] == 404


def test_the_list_is_notified_of_running_and_of_new_runs(site, going, folder):
    stream = Stream(site, "/events")
    kind, _, live = stream.next()
    while not [one for one in live if one["run"] == going.path.name]:
        kind, _, live = stream.next()
    assert kind == "live" and live[0]["planned"] == 70
    with RunFolder.create(folder / "x" / "runs", plan("new")):
        while stream.next()[0] != "changed":
            pass
    stream.close()
