import os
import stat

import pytest
from file_cases import Room, cases, check_case, lay

import waza


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def expect(path, **how):
    return {"expected_files": [{"path": path, **how}]}


@pytest.mark.parametrize("case", cases("diff"))
def test_conformance(case, tmp_path):
    check_case(case, tmp_path)


def test_feedback_says_what_differs_and_where(room):
    lay(room.spec, {"want.txt": "one\ntwo\nthree\n"})
    lay(room.work, {"a.txt": "one\nTWO\nthree\nfour\n"})
    grade = room.grade("diff", **expect("a.txt", snapshot="want.txt", contains=["+one", "-four", "five"]))
    assert grade.feedback.split("; ") == [
        "File a.txt does not match snapshot want.txt (2 lines differ)",
        "File a.txt contains forbidden fragment: four",
        "File a.txt missing expected fragment: five",
    ]
    assert grade.score == pytest.approx(2 / 5)
    shown = next(check for check in grade.checks if "snapshot" in check.claim)
    assert (shown.expected, shown.actual) == ("line 2: two", "line 2: TWO")
    assert grade.details["snapshot_updates"] == []
    assert grade.details["failures"] == grade.feedback.split("; ")


@pytest.mark.parametrize(
    ("fragment", "content", "holds"),
    [
        ("+  indented  ", "x indented y", True),
        ("- gone ", "gone", False),
        ("- gone ", "here", True),
        ("+def a():\n    b", "def a():\n    b\n", True),
        ("++x", "+x", True),
        ("--x", "-x", False),
        ("--x", "x", True),
        ("+Case", "case", False),
    ],
)
def test_fragments(room, fragment, content, holds):
    lay(room.work, {"a.txt": content})
    assert room.grade("diff", **expect("a.txt", contains=[fragment])).passed is holds


@pytest.mark.parametrize(("known", "seen"), [("a\n", "a\r\n"), ("a", "a\n"), ("", "\n"), ("\ufeffa", "a")])
def test_snapshots_are_compared_byte_for_byte(room, known, seen):
    lay(room.spec, {"want": known})
    lay(room.work, {"a": seen})
    assert room.grade("diff", **expect("a", snapshot="want")).status == "failed"
    lay(room.work, {"a": known})
    assert room.grade("diff", **expect("a", snapshot="want")).passed


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"expected_files": []}, "empty"),
        (expect("a", contains=[""]), "no text to search for"),
        (expect("a", contains=["+"]), "no text to search for"),
        (expect("a", contains=["- "]), "no text to search for"),
        (expect("a", contains=[]), "compared with nothing"),
        (expect("a", snapshot=""), "empty"),
        (expect("a", snapshot="folder"), "not a file"),
        (expect("a", snapshot="../outside.txt"), "leaves the project"),
        (expect("a", snapshot="link.txt"), "leaves the project"),
        (expect("a", snapshot="/etc/passwd"), "leaves the project"),
        (expect("a", snapshot="../want.txt") | {"context_dir": "context"}, "leaves the folder 'context'"),
        (expect("a", snapshot="link.txt") | {"context_dir": "context"}, "leaves the folder 'context'"),
        (expect("a", snapshot="want.txt") | {"context_dir": "../elsewhere"}, "leaves the project"),
        (expect("a", snapshots="want.txt"), "did you mean 'snapshot'"),
        (expect("../a", snapshot="want.txt"), "leaves the workspace"),
        (expect("src/*.py", contains=["a"]), "one file's path, not a glob"),
        (expect("src\\a.py", contains=["a"]), "write 'src/a.py'"),
        (expect("a", snapshot="want.txt") | {"update_snapshots": "yes"}, "true or false"),
    ],
)
@pytest.mark.parametrize("update", [False, True])
def test_what_is_wrong_is_refused_when_loaded(room, config, reason, update):
    lay(room.spec.parent, {"outside.txt": "secret", "elsewhere/want.txt": ""})
    lay(room.spec, {"want.txt": "", "folder/x": "", "context/want.txt": ""})
    (room.spec / "link.txt").symlink_to("../outside.txt")
    (room.spec / "context" / "link.txt").symlink_to("../want.txt")
    assert reason in room.refusal("diff", **({"update_snapshots": update} | config))


@pytest.mark.parametrize("where", [{}, {"context_dir": "nowhere"}])
def test_a_missing_snapshot_is_refused_unless_it_is_to_be_written(room, where):
    config = expect("a", snapshot="want.txt") | where
    assert "is not there" in room.refusal("diff", **config)
    assert room.load("diff", **config, update_snapshots=True)


def test_snapshots_stand_beside_the_eval_file_or_at_the_projects_root(tmp_path):
    lay(tmp_path, {".waza.yaml": "", "evals/own.txt": "own", "shared/common.txt": "common", "work/a": "common"})
    spec = {"type": "diff", "config": expect("a", snapshot="shared/common.txt")}
    grader = waza.load_grader(spec, base_dir=tmp_path / "evals")
    assert grader.grade(waza.Trace(input="", output=""), workspace=tmp_path / "work").passed


def test_an_agent_cannot_change_what_it_is_compared_with(room):
    lay(room.spec, {"want.txt": "right"})
    lay(room.work, {"a.txt": "wrong", "want.txt": "wrong"})
    grader = room.load("diff", **expect("a.txt", snapshot="want.txt"))
    (room.spec / "want.txt").write_text("wrong")
    assert grader.grade(waza.Trace(input="", output=""), workspace=room.work).status == "failed"


def test_updating_creates_rewrites_and_leaves_alone(room):
    lay(room.spec, {"same.txt": "same\n", "old.txt": "a\nb\n"})
    (room.spec / "old.txt").chmod(0o755)
    lay(room.work, {"1": "same\n", "2": "a\nB\nc\n", "3": "new\n"})
    files = [
        {"path": "1", "snapshot": "same.txt"},
        {"path": "2", "snapshot": "old.txt"},
        {"path": "3", "snapshot": "deep/er/new.txt"},
    ]
    before = (room.spec / "same.txt").stat().st_mtime_ns
    grade = room.grade("diff", expected_files=files, update_snapshots=True)
    assert grade.passed
    assert grade.feedback == "All diff checks passed (snapshots: 1 updated, 1 created, 1 unchanged)"
    told = {
        update["snapshot"]: (update["status"], update["lines_changed"]) for update in grade.details["snapshot_updates"]
    }
    assert told == {"same.txt": ("unchanged", 0), "old.txt": ("updated", 2), "deep/er/new.txt": ("created", 1)}
    assert (room.spec / "old.txt").read_text() == "a\nB\nc\n"
    assert stat.S_IMODE((room.spec / "old.txt").stat().st_mode) == 0o755
    assert (room.spec / "deep" / "er" / "new.txt").read_text() == "new\n"
    assert (room.spec / "same.txt").stat().st_mtime_ns == before
    assert room.grade("diff", expected_files=files).passed
    assert not list(room.spec.rglob(".*")), "nothing is left beside the snapshots"


def test_updating_follows_no_link_out_that_appears_after_loading(room):
    lay(room.work, {"a": "from the agent"})
    lay(room.spec.parent, {"victim.txt": "precious"})
    grader = room.load("diff", **expect("a", snapshot="new.txt"), update_snapshots=True)
    (room.spec / "new.txt").symlink_to("../victim.txt")
    grade = grader.grade(waza.Trace(input="", output=""), workspace=room.work)
    assert grade.status == "error"
    assert (room.spec.parent / "victim.txt").read_text() == "precious"


def test_updating_needs_the_file_to_be_there(room):
    grade = room.grade("diff", **expect("gone", snapshot="new.txt"), update_snapshots=True)
    assert grade.status == "failed"
    assert not (room.spec / "new.txt").exists()


def test_a_link_that_leads_outside_is_not_the_expected_file(room):
    lay(room.spec, {"want.txt": "secret"})
    lay(room.spec.parent, {"outside.txt": "secret"})
    (room.work / "a").symlink_to("../outside.txt")
    os.link(room.spec.parent / "outside.txt", room.work / "b")
    for path in ("a", "b"):
        assert (room.work / path).read_text() == "secret"
        assert room.grade("diff", **expect(path, snapshot="want.txt")).score == 0.0
        assert room.grade("diff", **expect(path, contains=["-x"])).score == 0.0
        assert "secret" not in repr(room.grade("diff", **expect(path, contains=["nothing"])))


def test_a_file_that_cannot_be_read_decides_nothing(room):
    with (room.work / "big").open("wb") as file:
        file.truncate(1 << 40)
    assert room.grade("diff", **expect("big", contains=["-x"])).status == "error"


def test_without_a_workspace_nobody_can_tell(room):
    grade = room.load("diff", **expect("a", contains=["x"])).grade(waza.Trace(input="", output=""))
    assert grade.status == "error"
