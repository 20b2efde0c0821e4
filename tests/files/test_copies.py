import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from waza.files.trial_folder import copy_workspace
from waza.files.workspace import Workspace

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def ws(tmp_path):
    root = tmp_path / "ws"
    (root / "bin").mkdir(parents=True)
    (root / "a.txt").write_text("inner")
    (root / "bin" / "run").write_text("#!/bin/sh\n")
    return root


@pytest.fixture
def target(tmp_path):
    place = tmp_path / "copy"
    place.mkdir()
    return place


def test_content_modes_times_and_inner_links_are_kept(ws, target):
    (ws / "bin" / "run").chmod(0o755)
    os.utime(ws / "a.txt", ns=(10**18, 10**18))
    (ws / "link").symlink_to("bin/run")
    (ws / "bin" / "up").symlink_to("../a.txt")
    (ws / "absolute").symlink_to(ws / "a.txt")
    (ws / "~odd").write_text("odd")
    assert copy_workspace(Workspace(ws), target) == []
    assert (target / "a.txt").read_text() == "inner"
    assert (target / "a.txt").stat().st_mtime_ns == 10**18
    assert stat.S_IMODE((target / "bin" / "run").stat().st_mode) == 0o755
    assert os.readlink(target / "link") == "bin/run"
    assert (target / "bin" / "up").read_text() == "inner"
    assert (target / "absolute").resolve() == (target / "a.txt").resolve(), "not the original's file"
    assert (target / "~odd").read_text() == "odd"


def test_the_copy_is_writable_and_the_original_is_not_touched(ws, target):
    (ws / "a.txt").chmod(0o444)
    (ws / "bin").chmod(0o555)
    copy_workspace(Workspace(ws), target)
    assert stat.S_IMODE((target / "a.txt").stat().st_mode) & 0o200
    (target / "bin" / "new").write_text("x")
    (target / "a.txt").write_text("changed")
    assert (ws / "a.txt").read_text() == "inner"
    (ws / "bin").chmod(0o755)


def test_what_leads_outside_is_left_out_and_named(ws, target, tmp_path):
    (tmp_path / "secret").write_text("canary")
    (ws / "out").symlink_to("../secret")
    (ws / "bin" / "far").symlink_to(tmp_path / "secret")
    (ws / "maze").symlink_to("bin/../../secret")
    os.link(tmp_path / "secret", ws / "hard")
    os.mkfifo(ws / "pipe")
    left_out = copy_workspace(Workspace(ws), target)
    assert sorted(line.split(":")[0] for line in left_out) == ["bin/far", "hard", "maze", "out", "pipe"]
    assert sorted(path.name for path in target.rglob("*")) == ["a.txt", "bin", "run"]


def test_setuid_bits_are_dropped(ws, target):
    (ws / "bin" / "run").chmod(0o4755)
    copy_workspace(Workspace(ws), target)
    assert stat.S_IMODE((target / "bin" / "run").stat().st_mode) == 0o755


def test_a_workspace_too_large_to_copy_is_an_error(ws, target):
    with pytest.raises(OSError, match="too large"):
        copy_workspace(Workspace(ws), target, limit=6)


TRAPS = {
    "a hook": ("[core]\n\tbare = false\n", "git commit --allow-empty -m x"),
    "fsmonitor": ("[core]\n\tfsmonitor = {evil}\n", "git status"),
    "fsmonitor beside its header": ("[core] fsmonitor = {evil}\n", "git status"),
    "fsmonitor in capitals": ("[CORE]\n\tFsMonitor = {evil}\n", "git status"),
    "a hooks folder elsewhere": ("[core]\n\thooksPath = traps\n", "git commit --allow-empty -m x"),
    "an external diff": ("[diff]\n\texternal = {evil}\n", "git diff"),
    "a filter": ('[filter "x"]\n\tclean = {evil}\n\trequired = true\n', "git add a.txt"),
    "a diff driver": ('[diff "x"]\n\tcommand = {evil}\n', "git diff"),
    "an include": ("[include]\n\tpath = ../traps/config\n", "git status"),
    "an alias": ("[alias]\n\tst = !{evil}\n", "git st"),
}


def repository(ws, settings):
    """A repository whose settings and hooks touch a file when they run."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(ws)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    traps = ws / "traps"
    traps.mkdir()
    evil = ws / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {ws.parent / 'ran'}\ncat\n")
    evil.chmod(0o755)
    for hooks in (ws / ".git" / "hooks", traps):
        hooks.mkdir(exist_ok=True)
        shutil.copy(evil, hooks / "pre-commit")
    (traps / "config").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    (ws / ".gitattributes").write_text("a.txt filter=x diff=x\n")
    (ws / "a.txt").write_text("changed")
    with (ws / ".git" / "config").open("a") as file:
        file.write(settings.format(evil=evil))


def run_git(folder, words):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    git = ["sh", "-c", words]
    return subprocess.run(
        git, cwd=folder, env=environment | identity, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


@needs_git
@pytest.mark.parametrize("trap", TRAPS)
def test_git_in_the_copy_runs_nothing_of_the_agents(ws, target, tmp_path, trap):
    settings, words = TRAPS[trap]
    repository(ws, settings)
    ran = tmp_path / "ran"
    run_git(ws, words)
    assert ran.exists(), "the trap must work on a plain checkout, or this proves nothing"
    ran.unlink()
    copy_workspace(Workspace(ws), target)
    run_git(target, words)
    assert not ran.exists()


@needs_git
def test_git_in_the_copy_still_knows_the_history_and_branches_of_any_name(ws, target):
    repository(ws, "")
    subprocess.run(["git", "-C", str(ws), "branch", "hooks/config"], check=True)
    copy_workspace(Workspace(ws), target)
    assert "first" in run_git(target, "git log --oneline").stdout
    assert "hooks/config" in run_git(target, "git branch").stdout
    assert " M a.txt" in run_git(target, "git status --porcelain").stdout


@pytest.mark.parametrize("disguise", ["file", "link", "commondir", "settings link", "below a folder named refs"])
@needs_git
def test_a_git_folder_in_disguise_is_no_way_around(ws, target, tmp_path, disguise):
    repository(ws, "[core]\n\tfsmonitor = {evil}\n")
    git, real = ws / ".git", ws / "real"
    if disguise in ("file", "link"):
        git.rename(real)
        git.write_text("gitdir: real\n") if disguise == "file" else git.symlink_to("real")
    elif disguise == "commondir":
        shutil.copytree(git, real)
        (git / "commondir").write_text("../real\n")
    elif disguise == "settings link":
        (git / "config").rename(real)
        (git / "config").symlink_to("../real")
    else:
        (ws / "refs").mkdir()
        git.rename(ws / "refs" / ".git")
    here = "refs" if "refs" in disguise else "."
    ran = tmp_path / "ran"
    run_git(ws / here, "git status")
    assert ran.exists(), "the disguise must work on a plain checkout, or this proves nothing"
    ran.unlink()
    copy_workspace(Workspace(ws), target)
    run_git(target / here, "git status")
    assert not ran.exists()


def test_any_kind_of_files_can_be_copied(ws, target):
    class Stored:
        root = str(ws)

        def kind(self, path):
            return "file"

        def read(self, path):
            return b""

        def paths(self):
            return iter(())

    assert copy_workspace(Stored(), target) == []
    assert Path(target, "a.txt").read_text() == "inner"
