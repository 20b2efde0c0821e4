"""A snapshot holds a workspace as the agent left it, nothing from outside, and says what it does not hold."""

import gc
import json
import os
import shutil
import socket
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waza.errors import StoreError
from waza.files.snapshot import EMPTY, MAX_ENTRIES, SnapshotFiles, restore, store_bytes, take
from waza.files.tree import remove
from waza.files.workspace import Workspace

QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path):
    return tmp_path / "artifacts"


@pytest.fixture
def quick_folder(tmp_path):
    """A folder in memory, where there is one: a hundred thousand entries on a busy disk take their time."""
    folder = Path(tempfile.mkdtemp(prefix="waza-test-", dir=QUICK or tmp_path))
    yield folder
    remove(folder)


def picture(folder):
    """Everything in a folder: path, kind, mode, content."""
    seen = {}
    for path in Path(folder).rglob("*"):
        name, info = os.fsencode(path.relative_to(folder)), path.lstat()
        if path.is_symlink():
            seen[name] = ("link", os.readlink(path))
        elif path.is_dir():
            seen[name] = ("folder", stat.S_IMODE(info.st_mode))
        else:
            seen[name] = ("file", stat.S_IMODE(info.st_mode), path.read_bytes())
    return seen


def stored_bytes(store):
    return b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())


# Round trip


def test_a_workspace_comes_back_as_it_was(work, store, tmp_path):
    (work / "sub/empty").mkdir(parents=True)
    (work / "sub/run.sh").write_bytes(b"\0\xff\r\n")
    (work / "sub/run.sh").chmod(0o751)
    (work / "read-only").mkdir()
    (work / "read-only/x").write_text("x")
    (work / "read-only").chmod(0o555)
    (work / "link").symlink_to("sub/run.sh")
    (work / "sub/up").symlink_to("../read-only")
    (work / "dangling").symlink_to("nowhere")
    restore(store, take(work, store), tmp_path / "again")
    assert picture(tmp_path / "again") == picture(work)


NAMES = st.sampled_from(
    ["a", "b", "c.txt", "d", "é", "~x", "C:x", "new\nline", "-rf", "a b", "\udcff", ".hidden", "{}"]
)
TARGETS = st.lists(st.sampled_from(["a", "b", "d", "..", ".", "gone", "c.txt"]), min_size=1, max_size=4).map("/".join)
ABSOLUTE = st.sampled_from(["/", "/etc/passwd", "/nowhere"])
LEAVES = st.one_of(
    st.binary(max_size=40).map(lambda data: ("file", data)),
    st.one_of(TARGETS, ABSOLUTE).map(lambda target: ("link", target)),
    st.just(("pipe", None)),
)
TREES = st.dictionaries(
    NAMES, st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=12), max_size=5
)


def grow(folder, tree):
    for name, what in tree.items():
        place = Path(folder, name)
        if isinstance(what, dict):
            place.mkdir()
            grow(place, what)
        elif what[0] == "file":
            place.write_bytes(what[1])
        elif what[0] == "link":
            place.symlink_to(what[1])
        else:
            os.mkfifo(place)


def answer(question, path):
    try:
        return question(path)
    except OSError:
        return OSError


PATHS = st.lists(st.one_of(NAMES, st.sampled_from(["..", "."])), min_size=1, max_size=4).map("/".join)


@settings(max_examples=100, deadline=None)
@given(TREES, st.lists(PATHS, max_size=12))
def test_a_snapshot_answers_as_the_live_workspace_does(tree, asked):
    with tempfile.TemporaryDirectory(dir=QUICK) as place:
        live, store, again = Path(place, "w"), Path(place, "s"), Path(place, "again")
        live.mkdir()
        grow(live, tree)
        name = take(live, store)
        restore(store, name, again)
        stored, restored, living = SnapshotFiles(store, name), Workspace(again), Workspace(live)
        everything = [str(path.relative_to(live)) for path in live.rglob("*")]
        for path in [*everything, *asked, *(f"{path}/{more}" for path in everything for more in asked[:3])]:
            assert stored.kind(path) == living.kind(path) == restored.kind(path), path
            assert answer(stored.read, path) == answer(living.read, path) == answer(restored.read, path), path
        assert list(stored.paths()) == list(living.paths()) == list(restored.paths())
        assert take(again, store) == name


def test_equal_workspaces_have_equal_names_and_content_is_stored_once(tmp_path, store):
    names = set()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for file in ("a", "b", "c"):
            (tmp_path / folder / file).write_text("the same")
        names.add(take(tmp_path / folder, store))
    assert len(names) == 1
    assert len([path for path in store.rglob("*") if path.is_file()]) == 2


def test_any_change_gives_another_name(work, store):
    names = []
    for change in (
        lambda: (work / "a").write_text("1"),
        lambda: (work / "a").write_text("2"),
        lambda: (work / "a").chmod(0o700),
        lambda: (work / "a").rename(work / "b"),
        lambda: (work / "c").mkdir(),
        lambda: (work / "d").symlink_to("b"),
    ):
        change()
        names.append(take(work, store))
    assert len(set(names)) == len(names)


def test_many_snapshots_at_once_do_not_disturb_each_other(tmp_path, store):
    def one(number):
        work = tmp_path / f"w{number}"
        work.mkdir()
        for file in range(20):
            (work / str(file)).write_text(f"{file % 5} {number % 3}")
        name = take(work, store)
        return all(SnapshotFiles(store, name).read(str(f)) == f"{f % 5} {number % 3}".encode() for f in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(40)))
    assert [path for path in (store / "objects").iterdir() if path.name.startswith(".")] == []


# Nothing there


def test_an_empty_workspace_touches_no_disk(work, store):
    assert take(work, store) == EMPTY
    assert not store.exists()
    files = SnapshotFiles(store, EMPTY)
    assert (files.kind("a"), list(files.paths()), os.listdir(files.root)) == ("absent", [], [])


def test_a_workspace_the_agent_removed_or_replaced_counts_as_empty(tmp_path, store):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("SECRET")
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "file").write_text("x")
    assert {take(tmp_path / name, store) for name in ("gone", "link", "file")} == {EMPTY}


# Nothing from outside


@pytest.fixture
def hostile(work, tmp_path):
    (tmp_path / "secret.txt").write_text("CANARY")
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer/deep.txt").write_text("CANARY")
    (work / "to-file").symlink_to(tmp_path / "secret.txt")
    (work / "to-folder").symlink_to(tmp_path / "outer")
    (work / "relative").symlink_to("../secret.txt")
    (work / "environ").symlink_to("/proc/self/environ")
    (work / "zero").symlink_to("/dev/zero")
    os.link(tmp_path / "secret.txt", work / "hard")
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(work)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    (work / "good.txt").write_text("fine")
    return work


def test_nothing_outside_is_copied(hostile, store):
    name = take(hostile, store)
    assert b"CANARY" not in stored_bytes(store)
    files = SnapshotFiles(store, name)
    kinds = {path: files.kind(path) for path in sorted(os.listdir(hostile))}
    assert kinds == {
        "environ": "outside",
        "good.txt": "file",
        "hard": "hard_link",
        "pipe": "other",
        "relative": "outside",
        "socket": "other",
        "to-file": "outside",
        "to-folder": "outside",
        "zero": "outside",
    }
    assert files.kind("to-folder/deep.txt") == "outside"
    assert list(files.paths()) == ["good.txt", "hard"]
    assert sorted(files.list_folder("").entries) == sorted(Workspace(hostile).list_folder("").entries)
    for path in set(kinds) - {"good.txt"}:
        with pytest.raises(OSError, match=r"leads outside|not a regular file|further hard links"):
            files.read(path)


def test_a_plain_copy_would_have_brought_the_canary(hostile, tmp_path):
    for name in ("pipe", "socket", "zero", "environ"):
        (hostile / name).unlink()
    shutil.copytree(hostile, tmp_path / "copy")
    assert (tmp_path / "copy/hard").read_text() == (tmp_path / "copy/to-folder/deep.txt").read_text() == "CANARY"


def test_laid_out_again_it_still_shows_what_cannot_be_read(hostile, store, tmp_path):
    name = take(hostile, store)
    restore(store, name, tmp_path / "again")
    stored, again = SnapshotFiles(store, name), Workspace(tmp_path / "again")
    # A hard link is laid out as a link that leads out: nothing else outside the folder may be made.
    kinds = {path: stored.kind(path) for path in os.listdir(hostile)} | {"hard": "outside"}
    assert {path: again.kind(path) for path in os.listdir(hostile)} == kinds


def test_an_absolute_link_into_the_workspace_stays_one(work, store, tmp_path):
    (work / "sub").mkdir()
    (work / "a.txt").write_text("A")
    (work / "sub/link").symlink_to(work / "a.txt")
    name = take(work, store)
    shutil.rmtree(work)
    assert SnapshotFiles(store, name).read("sub/link") == b"A"
    restore(store, name, tmp_path / "again")
    assert (tmp_path / "again/sub/link").read_text() == "A"


def test_special_bits_do_not_come_back(work, store, tmp_path):
    (work / "tool").write_text("x")
    (work / "tool").chmod(0o6755)
    restore(store, take(work, store), tmp_path / "again")
    assert stat.S_IMODE((tmp_path / "again/tool").stat().st_mode) == 0o755


def test_a_store_is_private(work, store):
    (work / "a").write_text("1")
    take(work, store)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in store.rglob("*")}
    assert modes == {0o700, 0o600}


def test_what_takes_secrets_out_reaches_contents_and_names_and_links(work, store, tmp_path):
    (work / "my-s3cret.txt").write_bytes(b"\xffkey=s3cret\n")
    (work / "link").symlink_to("my-s3cret.txt")
    (work / "to-s3cret").mkdir()
    name = take(work, store, lambda raw: raw.replace(b"s3cret", b"***"))
    assert b"s3cret" not in stored_bytes(store)
    files = SnapshotFiles(store, name)
    assert list(files.paths()) == ["my-***.txt"]
    assert files.read("link") == b"\xffkey=***\n"
    restore(store, name, tmp_path / "again")
    assert sorted(os.listdir(tmp_path / "again")) == ["link", "my-***.txt", "to-***"]


# What is not held is said


def test_a_file_that_is_too_large_is_there_but_cannot_be_read(work, store, tmp_path):
    (work / "huge").touch()
    os.truncate(work / "huge", 2**40)
    (work / "small").write_text("s")
    files = SnapshotFiles(store, take(work, store))
    assert (files.kind("huge"), files.read("small")) == ("file", b"s")
    with pytest.raises(OSError, match="larger than 256 MiB"):
        files.read("huge")
    with pytest.raises(OSError, match="'huge' was not copied"):
        files.root  # noqa: B018
    with pytest.raises(StoreError, match="'huge' was not copied: it is larger than 256 MiB"):
        restore(store, take(work, store), tmp_path / "again")


def test_of_a_workspace_with_too_many_files_nobody_can_say_that_one_is_not_there(quick_folder):
    work, store = quick_folder / "w", quick_folder / "s"
    work.mkdir()
    here = os.open(work, os.O_RDONLY)
    for number in range(MAX_ENTRIES + 1):
        os.mkfifo(str(number), dir_fd=here)
    os.close(here)
    files = SnapshotFiles(store, take(work, store))
    for question in (files.kind, files.read):
        with pytest.raises(OSError, match=f"more than {MAX_ENTRIES}"):
            question("gone.txt")
    with pytest.raises(OSError, match=f"more than {MAX_ENTRIES}"):
        list(files.paths())


def test_what_is_too_deep_is_left_out_and_the_rest_is_there(quick_folder):
    work, store = quick_folder / "w", quick_folder / "s"
    work.mkdir()
    (work / "good.txt").write_text("fine")
    here = os.open(work, os.O_RDONLY)
    for _ in range(10_000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    files = SnapshotFiles(store, take(work, store))
    assert (files.read("good.txt"), files.kind("d/d/d"), files.kind("d/gone")) == (b"fine", "folder", "absent")
    with pytest.raises(OSError, match="cannot be listed"):
        files.kind("/".join("d" * 2_000))
    with pytest.raises(OSError, match="cannot be listed"):
        list(files.paths())


# A store that is not what it was


def objects(store):
    return [path for path in store.rglob("*") if path.is_file()]


def test_a_damaged_copy_is_an_error_and_never_other_content(work, store, tmp_path):
    (work / "a").write_text("right")
    name = take(work, store)
    for path in objects(store):
        if path.read_bytes() == b"right":
            path.write_bytes(b"wrong")
    with pytest.raises(OSError, match="damaged"):
        SnapshotFiles(store, name).read("a")
    with pytest.raises(StoreError, match="damaged"):
        restore(store, name, tmp_path / "again")


def test_a_torn_copy_is_written_again(work, store):
    (work / "a").write_text("right")
    name = take(work, store)
    for path in objects(store):
        os.truncate(path, 1)
    assert take(work, store) == name
    assert SnapshotFiles(store, name).read("a") == b"right"


def test_a_store_that_cannot_be_written_says_so(work, tmp_path):
    (work / "a").write_text("1")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        take(work, tmp_path / "file")


@pytest.mark.parametrize("name", ["../../secret", "", "a" * 64, "/etc/passwd", "A" * 64])
def test_a_name_that_is_none_is_refused(store, tmp_path, name):
    (tmp_path / "secret").write_text('{"items": []}')
    with pytest.raises(OSError, match=r"not the name of a stored copy|No such file"):
        SnapshotFiles(store, name).kind("a")
    with pytest.raises(StoreError):
        restore(store, name, tmp_path / "again")


@pytest.mark.parametrize(
    "items",
    [
        [{"path": "../out", "kind": "folder"}],
        [{"path": "/out", "kind": "folder"}],
        [{"path": "a//b", "kind": "folder"}],
        [{"path": "a", "kind": "link", "target": ".."}, {"path": "a/out", "kind": "link", "target": "x"}],
        [{"path": "a", "kind": "file", "sha256": "../../secret"}],
        [{"path": "a", "kind": "device"}],
        "nothing",
    ],
)
def test_a_forged_manifest_reaches_nothing_outside(store, tmp_path, items):
    (tmp_path / "secret").write_text("SECRET")
    name = store_bytes(json.dumps({"items": items}).encode(), store)
    with pytest.raises(StoreError):
        restore(store, name, tmp_path / "place/again")
    assert sorted(os.listdir(tmp_path)) in (["artifacts", "secret"], ["artifacts", "place", "secret"])
    assert not list((tmp_path / "place").glob("out"))


def test_something_else_by_that_name_is_no_manifest(store):
    with pytest.raises(OSError, match="not a stored workspace"):
        SnapshotFiles(store, store_bytes(b"hello", store)).kind("a")


# A real folder for programs


def test_the_root_is_a_copy_that_goes_with_its_owner(work, store):
    (work / "a").write_text("1")
    files = SnapshotFiles(store, take(work, store))
    root = Path(files.root)
    assert (root / "a").read_text() == "1"
    assert files.root == str(root)
    (root / "a").write_text("changed")
    assert files.read("a") == b"1"
    del files
    gc.collect()
    assert not root.exists()
