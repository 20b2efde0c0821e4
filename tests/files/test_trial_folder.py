"""A trial's room is fresh and private, holds the task's input files and nothing else, and leaves nothing behind."""

import json
import logging
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from waza.errors import EngineError
from waza.files.tree import clear, remove
from waza.files.trial_folder import MAX_INPUT_ENTRIES, make_trial_folder
from waza.model import InputFile, Task

NOBODY = 65534


def task(*files, **fields):
    return Task(id="t", prompt="p", files=list(files), **fields)


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


@pytest.fixture
def quick_folder(tmp_path):
    """A folder in memory, where there is one: twenty thousand entries on a busy disk take their time."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="waza-test-", dir="/dev/shm"))
    yield folder
    remove(folder)


# A fresh, private folder


def test_a_room_is_empty_and_private_and_gone_afterwards(tmp_path):
    with make_trial_folder(task(), parent=tmp_path) as room:
        place = room.workspace.parent
        assert room.workdir == room.workspace
        assert listing(place) == ["home", "workspace"]
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (place, room.workspace, room.home)}
        assert modes == {0o700}
    assert listing(tmp_path) == []


def test_two_rooms_share_nothing(tmp_path):
    with make_trial_folder(task(), parent=tmp_path) as one, make_trial_folder(task(), parent=tmp_path) as other:
        (one.workspace / "a").write_text("1")
        assert listing(other.workspace) == []


def test_the_room_does_not_tell_which_task_it_is_for(tmp_path):
    with make_trial_folder(Task(id="secret-task", prompt="p"), parent=tmp_path) as room:
        assert "secret" not in str(room.workspace)


def test_a_kept_room_stays(tmp_path):
    with make_trial_folder(task(), keep=True, parent=tmp_path) as room:
        (room.workspace / "a").write_text("1")
    assert (room.workspace / "a").read_text() == "1"


def test_a_room_is_removed_when_the_trial_breaks(tmp_path):
    with pytest.raises(RuntimeError), make_trial_folder(task(), parent=tmp_path):
        raise RuntimeError
    assert listing(tmp_path) == []


# Input files


def test_text_and_files_and_folders_are_laid_out(tmp_path):
    source = tmp_path / "fixtures"
    (source / "sub").mkdir(parents=True)
    (source / "sub/a.txt").write_text("A")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    files = [
        InputFile(path="notes/n.txt", content="héllo"),
        InputFile(path="one.txt", source=str(source / "sub/a.txt")),
        InputFile(path="all", source=str(source)),
        InputFile(path=".", source=str(source / "sub")),
    ]
    with make_trial_folder(task(*files)) as room:
        assert listing(room.workspace) == [
            "a.txt",
            "all",
            "all/run.sh",
            "all/sub",
            "all/sub/a.txt",
            "notes",
            "notes/n.txt",
            "one.txt",
        ]
        assert (room.workspace / "notes/n.txt").read_text() == "héllo"
        assert os.access(room.workspace / "all/run.sh", os.X_OK)


def test_a_later_input_file_wins_over_an_earlier_one(tmp_path):
    (tmp_path / "a.txt").write_text("from the folder")
    files = [InputFile(path=".", source=str(tmp_path)), InputFile(path="a.txt", content="own")]
    with make_trial_folder(task(*files)) as room:
        assert (room.workspace / "a.txt").read_text() == "own"


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "~/x", "", "C:\\x", "a\0b"])
def test_an_input_file_cannot_be_laid_outside(tmp_path, path):
    with (
        pytest.raises(EngineError, match="cannot be copied"),
        make_trial_folder(task(InputFile(path=path, content="x")), parent=tmp_path),
    ):
        pass
    assert listing(tmp_path) == []


def test_a_missing_source_says_which_input_file_it_was(tmp_path):
    file = InputFile(path="a.txt", source=str(tmp_path / "gone"))
    with (
        pytest.raises(EngineError, match=r"input file 'a\.txt' cannot be copied: No such file"),
        make_trial_folder(task(file)),
    ):
        pass


def test_a_file_where_a_folder_is_needed_is_told(tmp_path):
    files = [InputFile(path="a", content="file"), InputFile(path="a/b", content="x")]
    with pytest.raises(EngineError, match="input file 'a/b' cannot be copied"), make_trial_folder(task(*files)):
        pass


@pytest.fixture
def zoo(tmp_path):
    """A folder of fixtures with everything that must not simply be copied."""
    folder = tmp_path / "zoo"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("SECRET")
    (folder / "plain.txt").write_text("plain")
    (folder / "setuid").write_text("x")
    (folder / "setuid").chmod(0o6755)
    (folder / "inner").symlink_to("sub/../plain.txt")
    (folder / "dangling").symlink_to("sub/later.txt")
    (folder / "loop").symlink_to("loop")
    (folder / "absolute").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to("../secret.txt")
    (folder / "sub/root").symlink_to("..")
    (folder / "sneaky").symlink_to("sub/root/../secret.txt")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(folder)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    (folder / ".git/hooks").mkdir(parents=True)
    (folder / ".git/hooks/post-checkout").write_text("evil")
    (folder / "sub/.git").write_text("gitdir: /elsewhere")
    return folder


def test_from_a_zoo_only_harmless_things_are_copied_and_the_rest_is_named(zoo):
    with make_trial_folder(task(InputFile(path=".", source=str(zoo)))) as room:
        copy = room.workspace
        assert listing(copy) == ["dangling", "inner", "loop", "plain.txt", "setuid", "sub", "sub/root"]
        assert (copy / "inner").read_text() == "plain"
        assert stat.S_IMODE((copy / "setuid").stat().st_mode) == 0o755
        assert sorted(room.left_out) == [
            "'.git' is not copied; name it as an input file to have it",
            "'absolute' is a link that leads out of the workspace",
            "'pipe' is not a regular file",
            "'sneaky' is a link that leads out of the workspace",
            "'socket' is not a regular file",
            "'sub/.git' is not copied; name it as an input file to have it",
            "'up' is a link that leads out of the workspace",
        ]


def test_a_link_between_input_folders_is_kept(zoo):
    files = [InputFile(path="z", source=str(zoo)), InputFile(path="secret.txt", content="not so secret")]
    with make_trial_folder(task(*files)) as room:
        assert (room.workspace / "z/up").read_text() == "not so secret"


def test_a_plain_copy_of_the_zoo_would_have_brought_the_secret(zoo, tmp_path):
    (zoo / "pipe").unlink()
    (zoo / "socket").unlink()
    (zoo / "dangling").unlink()
    (zoo / "loop").unlink()
    (zoo / "sub/root").unlink()
    (zoo / "sneaky").unlink()
    shutil.copytree(zoo, tmp_path / "copy")
    assert (tmp_path / "copy/up").read_text() == "SECRET"
    assert (tmp_path / "copy/.git/hooks/post-checkout").exists()


def test_a_git_folder_that_is_named_itself_is_copied(zoo):
    with make_trial_folder(task(InputFile(path=".git", source=str(zoo / ".git")))) as room:
        assert (room.workspace / ".git/hooks/post-checkout").read_text() == "evil"


def test_nothing_is_written_through_a_link_of_an_earlier_input(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    source = tmp_path / "source"
    source.mkdir()
    (source / "d").symlink_to(outside)
    files = [InputFile(path=".", source=str(source)), InputFile(path="d/x", content="x")]
    with make_trial_folder(task(*files)) as room:
        assert (room.workspace / "d/x").read_text() == "x"
        assert not (room.workspace / "d").is_symlink()
    assert listing(outside) == []


def test_input_files_that_are_too_large_are_refused_before_anything_is_copied(tmp_path):
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 2**40)
    with (
        pytest.raises(EngineError, match="more than 1024 MiB"),
        make_trial_folder(task(InputFile(path="huge", source=str(tmp_path / "huge")))),
    ):
        pass


def test_too_many_input_files_are_refused_before_anything_is_copied(quick_folder):
    here = os.open(quick_folder, os.O_RDONLY)
    for number in range(MAX_INPUT_ENTRIES + 1):
        os.symlink("x", str(number), dir_fd=here)
    os.close(here)
    with (
        pytest.raises(EngineError, match=f"more than {MAX_INPUT_ENTRIES}"),
        make_trial_folder(task(InputFile(path=".", source=str(quick_folder)))),
    ):
        pass


# The working folder


def test_the_working_folder_is_made(tmp_path):
    with make_trial_folder(task(workdir="a/b")) as room:
        assert room.workdir == room.workspace / "a/b"
        assert room.workdir.is_dir()


@pytest.mark.parametrize("workdir", ["..", "/", "a/../.."])
def test_a_working_folder_outside_is_refused(workdir):
    with pytest.raises(EngineError, match="workdir"), make_trial_folder(task(workdir=workdir)):
        pass


def test_a_working_folder_that_is_a_file_is_refused():
    with (
        pytest.raises(EngineError, match="workdir 'a' cannot be created"),
        make_trial_folder(task(InputFile(path="a", content=""), workdir="a")),
    ):
        pass


# Cleaning up after a hostile agent


@pytest.fixture
def canary(tmp_path):
    folder = tmp_path / "canary"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/keep.txt").write_text("alive")
    (folder / "keep.txt").write_text("alive")
    return folder


def plant_links(workspace, canary):
    (workspace / "to-folder").symlink_to(canary)
    (workspace / "sub").mkdir()
    (workspace / "sub/to-deep").symlink_to(canary / "deep")
    (workspace / "to-file").symlink_to(canary / "keep.txt")
    os.link(canary / "keep.txt", workspace / "hard")
    (workspace / "up").symlink_to("../..")


def is_whole(canary):
    return (canary / "deep/keep.txt").read_text() == (canary / "keep.txt").read_text() == "alive"


def test_cleaning_up_never_follows_a_link(tmp_path, canary):
    rooms_folder = tmp_path / "rooms"
    rooms_folder.mkdir()
    with make_trial_folder(task(), parent=rooms_folder) as room:
        plant_links(room.workspace, canary)
    assert listing(rooms_folder) == []
    assert is_whole(canary)


def test_the_canary_would_notice_a_removal_that_follows_links(tmp_path, canary):
    def naive(folder):
        for path in list(Path(folder).iterdir()):
            if path.is_dir():
                naive(path)
            elif path.name != "hard":
                path.unlink()

    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "to-folder").symlink_to(canary)
    naive(workspace)
    assert not (canary / "keep.txt").exists()


def test_a_workspace_replaced_by_a_link_is_not_followed(tmp_path, canary):
    rooms_folder = tmp_path / "rooms"
    rooms_folder.mkdir()
    with make_trial_folder(task(), parent=rooms_folder) as room:
        room.workspace.rmdir()
        room.workspace.symlink_to(canary)
    assert listing(rooms_folder) == []
    assert is_whole(canary)


def test_a_room_replaced_by_a_link_is_not_followed(tmp_path, canary):
    rooms_folder = tmp_path / "rooms"
    rooms_folder.mkdir()
    with make_trial_folder(task(), parent=rooms_folder) as room:
        place = room.workspace.parent
        shutil.rmtree(place)
        place.symlink_to(canary)
    assert listing(rooms_folder) == []
    assert is_whole(canary)


def test_a_room_the_agent_removed_itself_is_no_trouble(tmp_path, caplog):
    with make_trial_folder(task(), parent=tmp_path) as room:
        shutil.rmtree(room.workspace.parent)
    assert caplog.records == []


def test_odd_names_and_special_files_are_removed(tmp_path):
    with make_trial_folder(task(), parent=tmp_path) as room:
        inside = os.fsencode(room.workspace)
        for name in (b"new\nline", b"\xff\xfe", b"-rf", b" ", b"*", b"x" * 255):
            os.mkdir(inside + b"/" + name)
            with open(inside + b"/" + name + b"/" + name, "w"):
                pass
        os.mkfifo(room.workspace / "pipe")
    assert os.listdir(tmp_path) == []


def test_a_tree_ten_thousand_folders_deep_is_removed(quick_folder):
    with make_trial_folder(task(), parent=quick_folder) as room:
        dig(room.workspace, 10_000)
        place = room.workspace.parent
    assert not place.exists()


def dig(folder, depth):
    """Make a chain of folders, each with a file, far deeper than a path can say."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_many_files_are_removed(quick_folder):
    with make_trial_folder(task(), parent=quick_folder) as room:
        for number in range(20_000):
            (room.workspace / f"f{number}").touch()
        place = room.workspace.parent
    assert not place.exists()


def test_only_the_inside_is_cleared(tmp_path, canary):
    workspace = tmp_path / "w"
    workspace.mkdir()
    plant_links(workspace, canary)
    assert clear(workspace) == []
    assert os.listdir(workspace) == []
    assert is_whole(canary)


def test_removing_what_is_not_there_is_no_trouble(tmp_path):
    assert remove(tmp_path / "gone") == []


@pytest.fixture
def public_folder():
    """A folder that another user can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="waza-test-"))
    yield folder
    remove(folder)


def without_rights(act, folder):
    """Do something as a user whom file modes bind, which they do not bind root, and return what it returns."""
    if os.geteuid() != 0:
        return act(folder)
    reader, writer = os.pipe()
    os.chown(folder, NOBODY, NOBODY)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writer, json.dumps(act(folder)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        return json.loads(answer.read())


def leave_locked_folders(room):
    (room.workspace / "a/b/c").mkdir(parents=True)
    (room.workspace / "a/b/c/f").touch()
    (room.workspace / "a/b/c").chmod(0)
    (room.workspace / "a/b").chmod(0o500)
    (room.workspace / "a").chmod(0o100)
    room.workspace.chmod(0)
    room.workspace.parent.chmod(0)


def test_folders_without_any_rights_are_removed(public_folder):
    def act(folder):
        with make_trial_folder(task(), parent=folder) as room:
            leave_locked_folders(room)
        return os.listdir(folder)

    assert without_rights(act, public_folder) == []


def test_a_plain_removal_would_stop_at_such_folders(public_folder):
    def act(folder):
        with make_trial_folder(task(), parent=folder, keep=True) as room:
            leave_locked_folders(room)
        shutil.rmtree(room.workspace.parent, ignore_errors=True)
        return os.listdir(folder)

    assert without_rights(act, public_folder) != []


def test_what_cannot_be_removed_is_told_and_not_raised(tmp_path, caplog):
    chattr = shutil.which("chattr")
    with caplog.at_level(logging.WARNING), make_trial_folder(task(), parent=tmp_path) as room:
        stuck = room.workspace / "stuck\n\x1b[2J"
        stuck.mkdir()
        (stuck / "file").touch()
        made = chattr and subprocess.run([chattr, "+i", str(stuck / "file")], capture_output=True).returncode == 0
        if not made:
            pytest.skip("nothing can be made immutable here")
    said = [record.getMessage() for record in caplog.records]
    for file in tmp_path.rglob("file"):
        subprocess.run([chattr, "-i", str(file)], check=True)
    assert any("'file' could not be removed: Operation not permitted" in line for line in said)
    assert "\x1b" not in "".join(said)
    assert remove(next(tmp_path.iterdir())) == []
