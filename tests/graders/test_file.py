import os

import pytest
from file_cases import CaseFolders, cases, check_case, lay

import waza
from waza.files.snapshot import SnapshotFiles, take
from waza.files.workspace import Workspace
from waza.graders.file import GlobSearch
from waza.graders.prompt import PromptGrader
from waza.judges import ScriptedJudge

CANARY = "canary-of-the-host"


@pytest.fixture
def case_folders(tmp_path):
    return CaseFolders(tmp_path)


@pytest.mark.parametrize("case", cases("file"))
def test_conformance(case, tmp_path):
    check_case(case, tmp_path)


def test_feedback_says_what_is_wrong_with_each_file(case_folders):
    lay(case_folders.work, {"a.txt": "alpha", "left.txt": ""})
    patterns = [
        {"path": "a.txt", "must_match": ["beta"], "must_not_match": ["alp.a"]},
        {"path": "gone.txt", "must_match": ["x"], "must_not_match": ["y"]},
    ]
    grade = case_folders.grade("file", must_exist=["b.txt"], must_not_exist=["left.txt"], content_patterns=patterns)
    assert grade.feedback.split("; ") == [
        "File must exist but not found: b.txt",
        "File must not exist but found: left.txt",
        "File a.txt missing expected pattern: beta",
        "File a.txt contains forbidden pattern: alp.a",
        "File not found for content check: gone.txt",
        "File gone.txt missing expected pattern (file not found): x",
        "File gone.txt contains forbidden pattern (file not found): y",
    ]
    assert grade.score == pytest.approx(1 / 8)
    assert grade.details["failures"] == grade.feedback.split("; ")
    assert grade.details["content_patterns"] == patterns
    assert case_folders.grade("file", must_exist=["a.txt"]).feedback == "All file checks passed"


BAD_PATHS = [
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "sub/..",
    "/etc/passwd",
    "//etc/passwd",
    "~",
    "~/x",
    "~root/x",
    "C:\\x",
    "c:x",
    "\\\\server\\share",
    "a\0b",
]


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("**secrets*", "write '**/*secrets*' for every folder, or '*secrets*' for this one"),
        ("src/**.py", "write 'src/**/*.py' for every folder, or 'src/*.py' for this one"),
        ("src\\main.py", "write 'src/main.py'"),
        (" .env", "write '.env'"),
        (".env\n", "write '.env'"),
    ],
)
def test_a_path_that_would_not_mean_what_its_author_means_is_refused(case_folders, path, remedy):
    for field, entry in (
        ("must_not_exist", path),
        ("must_exist", path),
        ("content_patterns", {"path": path, "must_not_match": ["a"]}),
    ):
        assert remedy in case_folders.refusal("file", **{field: [entry]})


@pytest.mark.parametrize("path", ["*.{tmp,log}", "part-{1..3}.csv", "*.[ch]", "[ab]*.txt"])
def test_braces_and_brackets_that_look_like_a_list_are_named(path):
    config = {"must_not_exist": ["a", path], "content_patterns": [{"path": path, "must_not_match": ["a"]}]}
    with pytest.warns(UserWarning, match="not a list; give one path for each") as warned:
        waza.load_grader({"type": "file", "config": config})
    assert [str(one.message).partition(":")[0] for one in warned] == [
        "config.must_not_exist[1]",
        "config.content_patterns[0].path",
    ]


@pytest.mark.filterwarnings("error")
def test_names_with_braces_and_spaces_inside_are_names(case_folders):
    names = ["{{name}}/a b.txt", "{id}.py", "a,b", "**/{id}.py", "app/[id]/*.tsx"]
    assert case_folders.grade("file", must_not_exist=names).status == "passed"


@pytest.mark.parametrize("path", BAD_PATHS)
@pytest.mark.parametrize("field", ["must_exist", "must_not_exist", "content_patterns"])
def test_a_path_that_is_not_in_the_workspace_is_refused_when_loaded(case_folders, field, path):
    entry = {"path": path, "must_match": ["x"]} if field == "content_patterns" else path
    assert case_folders.refusal("file", **{field: [entry]})


def outward(case_folders, how):
    """Make `work/planted` lead to a secret outside the workspace."""
    secret = case_folders.spec.parent / "secret"
    secret.write_text(CANARY)
    if how == "link":
        (case_folders.work / "planted").symlink_to(secret)
    elif how == "folder":
        (case_folders.work / "up").symlink_to("..")
        return "up/secret"
    elif how == "hard link":
        os.link(secret, case_folders.work / "planted")
    elif how == "chain":
        (case_folders.work / "one").symlink_to("../secret")
        (case_folders.work / "planted").symlink_to("one")
    return "planted"


@pytest.mark.parametrize("how", ["link", "folder", "chain"])
def test_what_leads_outside_neither_satisfies_nor_hides_and_its_content_reaches_no_result(case_folders, how):
    path = outward(case_folders, how)
    assert (case_folders.work / path).read_text() == CANARY, "the planted path must work for a naive reader"
    there = case_folders.grade("file", must_exist=[path])
    gone = case_folders.grade("file", must_not_exist=[path])
    content = case_folders.grade("file", content_patterns=[{"path": path, "must_match": ["canary"]}])
    hidden = case_folders.grade("file", content_patterns=[{"path": path, "must_not_match": ["nothing"]}])
    assert {there.status, gone.status, content.status, hidden.status} == {"failed"}
    assert "leads outside" in there.feedback
    assert CANARY not in repr([there, gone, content, hidden])


def test_an_inner_link_is_as_good_as_the_file(case_folders):
    lay(case_folders.work, {"real.txt": "alpha"})
    (case_folders.work / "link.txt").symlink_to(case_folders.work / "real.txt")
    patterns = [{"path": "link.txt", "must_match": ["^alpha$"]}]
    assert case_folders.grade("file", must_exist=["link.txt"], content_patterns=patterns).passed


@pytest.mark.timeout(20)
def test_a_pipe_is_neither_a_file_nor_absent_and_nobody_waits_for_it(case_folders):
    os.mkfifo(case_folders.work / "pipe")
    assert case_folders.grade("file", must_exist=["pipe"]).status == "failed"
    assert case_folders.grade("file", must_not_exist=["pipe"]).status == "failed"
    assert case_folders.grade("file", content_patterns=[{"path": "pipe", "must_not_match": ["x"]}]).status == "failed"


def test_a_link_to_nothing_counts_as_existing_where_nothing_may_exist(case_folders):
    (case_folders.work / "dangling").symlink_to("nowhere")
    assert case_folders.grade("file", must_not_exist=["dangling"]).status == "failed"
    assert case_folders.grade("file", must_exist=["dangling"]).status == "failed"


def test_a_file_too_large_to_read_decides_nothing_but_a_failure_beside_it_does(case_folders):
    with (case_folders.work / "big").open("wb") as file:
        file.truncate(1 << 40)
    patterns = [{"path": "big", "must_not_match": ["x"]}]
    grade = case_folders.grade("file", content_patterns=patterns)
    assert (grade.status, grade.score) == ("error", 0.0)
    assert "larger than" in grade.feedback
    assert case_folders.grade("file", must_exist=["gone"], content_patterns=patterns).status == "failed"


def test_without_a_workspace_nobody_can_tell(case_folders):
    grade = case_folders.load("file", must_exist=["a"]).grade(waza.Trace(input="", output=""))
    assert grade.status == "error"
    assert "no workspace" in grade.feedback


def test_bytes_that_are_no_text_and_byte_order_marks_do_not_get_in_the_way(case_folders):
    (case_folders.work / "mixed").write_bytes(b"\xef\xbb\xbfname\xff=1\n")
    assert case_folders.grade("file", content_patterns=[{"path": "mixed", "must_match": ["^name", "=1$|=1\n$"]}]).passed


@pytest.mark.timeout(20)
def test_a_pattern_that_never_ends_decides_nothing(case_folders):
    lay(case_folders.work, {"a.txt": "a" * 40 + "b"})
    grade = case_folders.grade("file", content_patterns=[{"path": "a.txt", "must_match": [r"(?!z)(a|a)+$"]}])
    assert grade.status == "error"
    assert "ran out of time" in grade.feedback


@pytest.mark.parametrize("stored", [False, True])
def test_a_file_with_further_hard_links_exists_but_its_content_is_undecided(case_folders, stored, tmp_path):
    path = outward(case_folders, "hard link")
    lay(case_folders.work, {"a.txt": "alpha"})
    files = (
        SnapshotFiles(tmp_path / "store", take(case_folders.work, tmp_path / "store")) if stored else case_folders.work
    )

    def grade(kind, **config):
        return case_folders.load(kind, **config).grade(waza.Trace(input="", output=""), workspace=files)

    for glob in (path, "plant*"):
        assert grade("file", must_exist=[glob]).passed
        assert grade("file", must_not_exist=[glob]).status == "failed"
        for patterns in ({"must_match": ["canary"]}, {"must_not_match": ["nothing"]}):
            content = grade("file", content_patterns=[{"path": glob} | patterns])
            assert (content.status, [check.ok for check in content.checks]) == ("error", [True, None])
            assert "further hard links" in content.feedback
    several = grade("file", content_patterns=[{"path": "*", "must_not_match": ["alpha"]}])
    assert several.status == "failed", "one file that is wrong decides"
    compared = grade("diff", expected_files=[{"path": path, "contains": ["-nothing", "+canary"]}])
    assert (compared.status, [check.ok for check in compared.checks]) == ("error", [True, None, None])
    judge = ScriptedJudge([{"tool_calls": [{"name": "set_waza_grade_pass", "arguments": {"reason": "fine"}}]}])
    prompt = PromptGrader(prompt="Is it good?", needs=["files"])
    judged = prompt.grade(waza.Trace(input="", output=""), workspace=files, judge=judge)
    assert (judged.status, "planted has further hard links" in judged.feedback) == ("error", True)
    assert CANARY not in repr([content, compared, judged])


TREE = ["a.py", ".hidden", "src/b.py", "src/x/y/c.py", "src/x/.env", "app/[id]/page.tsx", "part-b.csv", "*.md", "~a"]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("glob", "matches"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/x/y/c.py"]),
        ("src/**/c.py", ["src/x/y/c.py"]),
        ("src/**", ["src/b.py", "src/x", "src/x/.env", "src/x/y", "src/x/y/c.py"]),
        ("**/x/**/*.py", ["src/x/y/c.py"]),
        ("**/**/.env", ["src/x/.env"]),
        (".*", [".hidden"]),
        ("?.py", ["a.py"]),
        ("??.py", []),
        ("*/[id]/*.tsx", ["app/[id]/page.tsx"]),
        ("part-[ab].*", []),
        ("*.MD", []),
        ("*.md", ["*.md"]),
        ("?a", ["~a"]),
        ("s*/", ["src"]),
        ("src/../a.*", ["a.py"]),
        ("*a*a*a*a*a*a*a*a*b", []),
    ],
)
def test_a_glob_stands_for_names_and_folders_and_nothing_else(case_folders, stored, glob, matches, tmp_path):
    lay(case_folders.work, dict.fromkeys(TREE, "text"))
    files = (
        SnapshotFiles(tmp_path / "store", take(case_folders.work, tmp_path / "store"))
        if stored
        else Workspace(case_folders.work)
    )
    assert sorted(found.path for found in GlobSearch(files).find(glob)) == matches


def test_feedback_on_a_glob_names_the_files(case_folders):
    lay(
        case_folders.work, {f"{letter}.log": "x" for letter in "abcdefg"} | {"src/a.py": "# MIT", "src/b.py": "eval(1)"}
    )
    patterns = [{"path": "src/*.py", "must_match": ["^# MIT"], "must_not_match": [r"eval\("]}]
    grade = case_folders.grade("file", must_exist=["*.txt"], must_not_exist=["*.log"], content_patterns=patterns)
    assert grade.feedback.split("; ") == [
        "File must exist but not found: *.txt",
        "File must not exist but found: a.log, b.log, c.log, d.log, e.log and 2 more (matching *.log)",
        "File src/b.py (matching src/*.py) missing expected pattern: ^# MIT",
        r"File src/b.py (matching src/*.py) contains forbidden pattern: eval\(",
    ]
    assert grade.score == 1 / 5


def test_globs_follow_inner_links_once_and_see_that_others_lead_out(case_folders):
    lay(case_folders.work, {"real/a.key": "k", "src/b.txt": ""})
    (case_folders.work / "real/loop").symlink_to("..")
    (case_folders.work / "src/inner").symlink_to("../real")
    (case_folders.work / "out").symlink_to(case_folders.spec)
    search = GlobSearch(Workspace(case_folders.work))
    assert [found.path for found in search.find("src/**/*.key")] == ["src/inner/a.key"]
    assert [found.path for found in search.find("**/*.key")] == ["real/a.key"]
    assert [(found.path, found.kind) for found in search.find("out/*.key")] == [("out", "outside")]
    assert (
        case_folders.grade("file", must_exist=["o*"]).status
        == case_folders.grade("file", must_not_exist=["o*"]).status
        == "failed"
    )
    assert case_folders.grade("file", content_patterns=[{"path": "o*", "must_not_match": ["x"]}]).status == "failed"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_cannot_be_listed_decides_nothing(case_folders):
    lay(case_folders.work, {"closed/a.key": "", "b.txt": ""})
    (case_folders.work / "closed").chmod(0)
    try:
        assert case_folders.grade("file", must_not_exist=["**/*.key"]).status == "error"
        assert case_folders.grade("file", must_exist=["**/*.key"]).status == "error"
        assert case_folders.grade("file", must_exist=["**/*.txt"]).passed
    finally:
        (case_folders.work / "closed").chmod(0o700)
