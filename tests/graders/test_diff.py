import os
import stat

import pytest
from file_cases import CaseFolders, cases, check_case, lay

import waza


@pytest.fixture
def case_folders(tmp_path):
    return CaseFolders(tmp_path)


def expect(path, **how):
    return {"expected_files": [{"path": path, **how}]}


@pytest.mark.parametrize("case", cases("diff"))
def test_conformance(case, tmp_path):
    check_case(case, tmp_path)


def test_feedback_says_what_differs_and_where(case_folders):
    lay(case_folders.spec, {"want.txt": "one\ntwo\nthree\n"})
    lay(case_folders.work, {"a.txt": "one\nTWO\nthree\nfour\n"})
    grade = case_folders.grade("diff", **expect("a.txt", snapshot="want.txt", contains=["+one", "-four", "five"]))
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
def test_fragments(case_folders, fragment, content, holds):
    lay(case_folders.work, {"a.txt": content})
    assert case_folders.grade("diff", **expect("a.txt", contains=[fragment])).passed is holds


@pytest.mark.parametrize(("known", "seen"), [("a\n", "a\r\n"), ("a", "a\n"), ("", "\n"), ("\ufeffa", "a")])
def test_snapshots_are_compared_byte_for_byte(case_folders, known, seen):
    lay(case_folders.spec, {"want": known})
    lay(case_folders.work, {"a": seen})
    assert case_folders.grade("diff", **expect("a", snapshot="want")).status == "failed"
    lay(case_folders.work, {"a": known})
    assert case_folders.grade("diff", **expect("a", snapshot="want")).passed


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
def test_what_is_wrong_is_refused_when_loaded(case_folders, config, reason, update):
    lay(case_folders.spec.parent, {"outside.txt": "secret", "elsewhere/want.txt": ""})
    lay(case_folders.spec, {"want.txt": "", "folder/x": "", "context/want.txt": ""})
    (case_folders.spec / "link.txt").symlink_to("../outside.txt")
    (case_folders.spec / "context" / "link.txt").symlink_to("../want.txt")
    assert reason in case_folders.refusal("diff", **({"update_snapshots": update} | config))


@pytest.mark.parametrize("where", [{}, {"context_dir": "nowhere"}])
def test_a_missing_snapshot_is_refused_unless_it_is_to_be_written(case_folders, where):
    config = expect("a", snapshot="want.txt") | where
    assert "is not there" in case_folders.refusal("diff", **config)
    assert case_folders.load("diff", **config, update_snapshots=True)


def test_snapshots_stand_beside_the_eval_file_or_at_the_projects_root(tmp_path):
    lay(tmp_path, {".waza.yaml": "", "evals/own.txt": "own", "shared/common.txt": "common", "work/a": "common"})
    spec = {"type": "diff", "config": expect("a", snapshot="shared/common.txt")}
    grader = waza.load_grader(spec, base_dir=tmp_path / "evals")
    assert grader.grade(waza.Trace(input="", output=""), workspace=tmp_path / "work").passed


def test_an_agent_cannot_change_what_it_is_compared_with(case_folders):
    lay(case_folders.spec, {"want.txt": "right"})
    lay(case_folders.work, {"a.txt": "wrong", "want.txt": "wrong"})
    grader = case_folders.load("diff", **expect("a.txt", snapshot="want.txt"))
    (case_folders.spec / "want.txt").write_text("wrong")
    assert grader.grade(waza.Trace(input="", output=""), workspace=case_folders.work).status == "failed"


def test_updating_creates_rewrites_and_leaves_alone(case_folders):
    lay(case_folders.spec, {"same.txt": "same\n", "old.txt": "a\nb\n"})
    (case_folders.spec / "old.txt").chmod(0o755)
    lay(case_folders.work, {"1": "same\n", "2": "a\nB\nc\n", "3": "new\n"})
    files = [
        {"path": "1", "snapshot": "same.txt"},
        {"path": "2", "snapshot": "old.txt"},
        {"path": "3", "snapshot": "deep/er/new.txt"},
    ]
    before = (case_folders.spec / "same.txt").stat().st_mtime_ns
    grade = case_folders.grade("diff", expected_files=files, update_snapshots=True)
    assert grade.passed
    assert grade.feedback == "All diff checks passed (snapshots: 1 updated, 1 created, 1 unchanged)"
    updates = {
        update["snapshot"]: (update["status"], update["lines_changed"]) for update in grade.details["snapshot_updates"]
    }
    assert updates == {"same.txt": ("unchanged", 0), "old.txt": ("updated", 2), "deep/er/new.txt": ("created", 1)}
    assert (case_folders.spec / "old.txt").read_text() == "a\nB\nc\n"
    assert stat.S_IMODE((case_folders.spec / "old.txt").stat().st_mode) == 0o755
    assert (case_folders.spec / "deep" / "er" / "new.txt").read_text() == "new\n"
    assert (case_folders.spec / "same.txt").stat().st_mtime_ns == before
    assert case_folders.grade("diff", expected_files=files).passed
    assert not list(case_folders.spec.rglob(".*")), "nothing is left next to the snapshots"


def test_updating_follows_no_link_out_that_appears_after_loading(case_folders):
    lay(case_folders.work, {"a": "from the agent"})
    lay(case_folders.spec.parent, {"victim.txt": "precious"})
    grader = case_folders.load("diff", **expect("a", snapshot="new.txt"), update_snapshots=True)
    (case_folders.spec / "new.txt").symlink_to("../victim.txt")
    grade = grader.grade(waza.Trace(input="", output=""), workspace=case_folders.work)
    assert grade.status == "error"
    assert (case_folders.spec.parent / "victim.txt").read_text() == "precious"


def test_updating_needs_the_file_to_be_there(case_folders):
    grade = case_folders.grade("diff", **expect("gone", snapshot="new.txt"), update_snapshots=True)
    assert grade.status == "failed"
    assert not (case_folders.spec / "new.txt").exists()


def test_a_link_that_leads_outside_is_not_the_expected_file(case_folders):
    lay(case_folders.spec, {"want.txt": "secret"})
    lay(case_folders.spec.parent, {"outside.txt": "secret"})
    (case_folders.work / "a").symlink_to("../outside.txt")
    os.link(case_folders.spec.parent / "outside.txt", case_folders.work / "b")
    for path in ("a", "b"):
        assert (case_folders.work / path).read_text() == "secret"
        assert case_folders.grade("diff", **expect(path, snapshot="want.txt")).score == 0.0
        assert case_folders.grade("diff", **expect(path, contains=["-x"])).score == 0.0
        assert "secret" not in repr(case_folders.grade("diff", **expect(path, contains=["nothing"])))


def test_a_file_that_cannot_be_read_decides_nothing(case_folders):
    with (case_folders.work / "big").open("wb") as file:
        file.truncate(1 << 40)
    assert case_folders.grade("diff", **expect("big", contains=["-x"])).status == "error"


def test_without_a_workspace_nobody_can_tell(case_folders):
    grade = case_folders.load("diff", **expect("a", contains=["x"])).grade(waza.Trace(input="", output=""))
    assert grade.status == "error"
