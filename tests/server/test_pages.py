"""Every page, read strictly: text of agents is text in all of them, links lead to pages, none grows too large."""

import shutil
import time

import msgspec
import pytest
from hostile import STRINGS, hostile_run
from pages_read import faults, links, read
from runs_made import a_history, a_trial, plan, store_run
from serving import served

from waza.reports.html.markup import Html, el, href, render
from waza.runs.judge_card import Calibration, write_calibration
from waza.runs.retention import TAGS
from waza.stats.agreement import Confusion
from waza.untrusted.text import visible, well_formed

MEGABYTE = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def runs(folder):
    """A run for each hostile string, one with all of them, a corrupt one and some good ones."""
    parent = folder / "x" / "runs"
    made = []
    for number, text in enumerate(STRINGS):
        run = hostile_run(text)
        made.append(store_run(parent, run, run.results, run_id=f"hostile-{number:02}"))
        (made[-1] / TAGS).write_bytes(msgspec.json.encode([well_formed(text), "<b>tag</b>"]))
    run = hostile_run(*STRINGS)
    made.append(store_run(parent, run, run.results, run_id="hostile-all"))
    broken = store_run(parent, run, [], run_id="broken")
    (broken / "run.json").write_text('{"id": "<script>window.owned=1</script>')
    a_history(folder / "y" / "runs", runs=3)
    return made


def text_of(page):
    return "".join("".join(element.itertext()) for element in read(page)[:1])


def below(run):
    return [f"/runs/{run}", f"/runs/{run}/live"]


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(len(STRINGS)))
def test_a_hostile_text_is_text_on_the_pages_of_its_run(site, number):
    for path in below(f"hostile-{number:02}"):
        status, _, page = site.get(path)
        assert status == 200
        assert faults(page) == [], path
        shown = visible(well_formed(STRINGS[number]))
        assert shown[:60] in text_of(page) or not STRINGS[number].strip()


@pytest.mark.parametrize("path", ["/", "/?sort=suite&way=up", "/trends", "/runs/hostile-all", "/runs/hostile-all/live"])
def test_a_page_with_all_of_them_is_strict_whole_and_as_a_file(site, path):
    assert faults(site.get(path)[2]) == []
    status, headers, page = site.get(f"{path}{'&' if '?' in path else '?'}export=1")
    assert status == 200
    assert headers["content-disposition"].startswith("attachment")
    assert faults(page, is_export=True) == []


@pytest.mark.sampled
@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_what_a_person_types_into_an_address_is_text_too(site, text):
    asked = well_formed(text)[:300]
    every = dict.fromkeys(("q", "suite", "model", "tag", "verdict", "since", "sort", "skip"), asked)
    for path in (href("trends", suite=asked, model=asked), href("runs", "hostile-00", task=asked, **every),
                 href("runs", asked or "x"), *([href(**every)] if len(asked) % 4 == 0 else [])):  # fmt: skip
        status, _, page = site.get(path)
        assert status in (200, 404)
        assert faults(page) == []


def test_the_reader_would_notice_markup_that_is_not_ours(site):
    page = site.get("/nowhere")[2]
    noticed = [text for text in STRINGS if faults(page.replace("<h1>", f"<h1>{text}", 1))]
    assert len(noticed) > 25
    assert faults(render(el("a", "x", href="/", onclick="x")))


@pytest.mark.parametrize("where", ["javascript:x", "//evil.com", "/\\evil.com", "http://evil.com", "data:x", " /"])
def test_an_address_that_leads_elsewhere_cannot_be_written(where):
    with pytest.raises(ValueError, match="leads elsewhere"):
        render(el("a", "x", href=where))


def test_markup_is_only_what_a_builder_made():
    assert render(el("p", "<b>", Html("<i>x</i>"))) == "<p>&lt;b&gt;<i>x</i></p>"
    assert render(el("p", title='"><script>')) == '<p title="&quot;&gt;&lt;script&gt;"></p>'


def test_every_link_of_a_run_s_page_leads_to_a_page(site):
    for path in ("/?q=hostile-0", "/trends?suite=shop", "/runs/hostile-03"):
        for link in [link for link in dict.fromkeys(links(site.get(path)[2])) if not link.startswith("#")][:50]:
            assert site.get(link)[0] == 200, link


def test_a_corrupt_run_is_listed_with_its_reason_and_has_a_page(site):
    page = text_of(site.get("/?verdict=unreadable")[2])
    assert "broken" in page and "is damaged" in page
    status, _, page = site.get("/runs/broken")
    assert status == 200 and "is damaged" in text_of(page)


def test_failed_checks_come_first_and_the_matrix_needs_no_colour(site, folder):
    page = text_of(site.get("/runs/hostile-all")[2])
    assert page.index("Failed checks") < page.index("Tasks × graders")
    for mark in ("✗", "?", "undecided", "(as task_completion)"):
        assert mark in page


def test_tasks_are_found_filtered_and_sorted(site, folder):
    results = [a_trial(f"task-{n:04}", rate=n % 2) for n in range(6)]
    run = store_run(folder / "y" / "runs", plan("filters", tasks=6), results)
    page = wait_for(site, f"/runs/{run.name}")

    def tasks(query):
        found = site.get(f"/runs/{run.name}?{query}")[2]
        return [link.split("id=")[1] for link in links(found) if "/task?id=" in link and "trial=" not in link]

    assert "filters" in page
    assert tasks("sort=task") == [f"task-{n:04}" for n in range(6)]
    assert tasks("status=passed&sort=task") == ["task-0001", "task-0003", "task-0005"]
    assert tasks("task=0003") == ["task-0003"]
    assert tasks("tag=fast&sort=task") == ["task-0000", "task-0002", "task-0004"]


def wait_for(site, path):
    until = time.monotonic() + 20
    while (answer := site.get(path))[0] != 200:
        assert time.monotonic() < until, f"{path} never comes"
        time.sleep(0.1)
    return answer[2]


def test_a_large_run_is_shown_in_pages_under_a_megabyte(folder):
    parent = folder / "large" / "z" / "runs"
    results = [a_trial(f"task-{n:04}", calls=1) for n in range(600)]
    run = store_run(parent, plan("large", tasks=600), results)
    with served(folder / "large") as site:
        page = wait_for(site, f"/runs/{run.name}")
        assert len(page.encode()) < MEGABYTE
        assert "1–200 of 600 tasks" in page
        assert "401–600 of 600" in site.get(f"/runs/{run.name}?skip=400")[2]
    shutil.rmtree(parent)


def test_a_folder_without_runs_says_how_to_make_one(tmp_path):
    with served(tmp_path) as site:
        assert "waza run" in text_of(site.get("/")[2])
        assert site.get("/trends")[0] == 200


def test_unknown_pages_runs_and_numbers_are_reported_politely(site):
    for path in ("/nowhere", "/runs/none", "/runs/none/live", "/runs/none/task?id=x"):
        status, _, page = site.get(path)
        assert status == 404 and faults(page) == []
    for query in ("skip=-1", "skip=99999999999999999999", "skip=1e9", "skip=²", "since=2026-99-99", "since=0001-01-01"):
        assert site.get(f"/?{query.replace('²', '%C2%B2')}")[0] == 200


def test_a_run_without_calls_says_so_instead_of_drawing_them(site, folder):
    made = store_run(folder / "z" / "runs", plan("calm", tasks=1), [a_trial("task-0000", calls=0)])
    page = wait_for(site, f"/runs/{made.name}")
    assert "No trial called a tool." in text_of(page) and 'data-kind="bars"' not in page


def test_trigger_tests_and_judges_are_on_the_run_s_page_as_text(site, folder):
    """Hostile prompts, skills, graders and models, in the sections that other reports share."""
    root = folder / "judged"
    (root / "runs").mkdir(parents=True)
    (root / ".waza.yaml").write_text("")
    for number, text in enumerate(STRINGS[:30]):
        made = Confusion(true_pass=number, true_fail=3)
        write_calibration(root, Calibration(grader=text, rubric="r", model=text, counts=made))
    prompts = [
        {"id": f"trigger:{n}", "prompt": text, "skill": text} for n, text in enumerate(map(well_formed, STRINGS))
    ]
    about = {"prompts": prompts, "skills": [one["skill"] for one in prompts], "catalogue": True, "tasks": prompts}
    graders = {"task-0000": [{"name": well_formed(text), "type": "prompt"} for text in STRINGS]}
    run = plan("judged", tasks=1)
    spec = run.spec | {"triggers": about, "judged": {"task-0000": ["r"]}, "graders": graders}
    asked = [msgspec.structs.replace(a_trial(prompt["id"], rate=n > 2), reason=prompt["skill"])
             for n, prompt in enumerate(prompts)]  # fmt: skip
    made = store_run(root / "runs", msgspec.structs.replace(run, spec=spec), [a_trial("task-0000"), *asked])
    page = wait_for(site, f"/runs/{made.name}")
    assert faults(page) == []
    shown = text_of(page)
    wrong = [link for link in links(page) if "/task?id=trigger" in link and "trial=1" in link]
    assert len(wrong) == 3 and [site.get(link)[0] for link in wrong] == [200] * 3
    assert "Trigger tests" in shown and "Calibration:" in shown and "agrees with people" in shown
    assert faults(site.get(f"/runs/{made.name}?export=1")[2], is_export=True) == []
