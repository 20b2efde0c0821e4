import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign import count, size
from waza.files.snapshot import SnapshotFiles, take
from waza.files.workspace import HAS_DESCRIPTORS, MAX_FILE_BYTES, Workspace

CANARY = b"canary: a secret of the host"
both_ways = pytest.mark.parametrize("descriptors", [True, False])
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs renameat2")


@pytest.fixture
def host(tmp_path):
    """A host with a secret, and a workspace below it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_bytes(CANARY)
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    (tmp_path / "ws" / "a.txt").write_bytes(b"inner")
    (tmp_path / "ws" / "sub" / "b.txt").write_bytes(b"deeper")
    return tmp_path


def look(host, descriptors=True):
    return Workspace(host / "ws", descriptors=descriptors)


def attempted_read(files, path):
    """Count one attempt to read a file outside, fail if it gives anything, and return the reason of the refusal."""
    count("escape attempts")
    try:
        files.read(path)
    except OSError as error:
        count("contacts with anything outside", 0)
        return str(error)
    count("contacts with anything outside", 1)
    raise AssertionError(f"{path} was read")


@both_ways
def test_files_and_folders_are_what_they_are(host, descriptors):
    files = look(host, descriptors)
    assert (files.kind("a.txt"), files.kind("sub"), files.kind("sub/"), files.kind("no")) == (
        "file",
        "folder",
        "folder",
        "absent",
    )
    assert files.read("a.txt") == b"inner"
    assert files.read("sub/../a.txt") == b"inner"
    assert files.kind("a.txt/below") == "absent"
    assert list(files.paths()) == ["a.txt", "sub/b.txt"]
    assert Path(files.root) == (host / "ws").resolve()


@both_ways
@pytest.mark.parametrize(
    ("name", "target", "reads"),
    [
        ("link", "a.txt", b"inner"),
        ("link", "./sub/b.txt", b"deeper"),
        ("sub/link", "../a.txt", b"inner"),
        ("link", "sub/../a.txt", b"inner"),
    ],
)
def test_an_inner_link_to_an_inner_file_is_read(host, name, target, reads, descriptors):
    (host / "ws" / name).symlink_to(target)
    assert look(host, descriptors).kind(name) == "file"
    assert look(host, descriptors).read(name) == reads


@both_ways
def test_an_absolute_link_into_the_workspace_is_an_inner_link(host, descriptors):
    (host / "ws" / "link").symlink_to(host / "ws" / "sub")
    assert look(host, descriptors).read("link/b.txt") == b"deeper"
    assert look(host, descriptors).link_target("link") == "sub"


@both_ways
def test_chains_of_inner_links_are_followed(host, descriptors):
    (host / "ws" / "one").symlink_to("sub")
    (host / "ws" / "two").symlink_to("one/b.txt")
    (host / "ws" / "sub" / "up").symlink_to("..")
    files = look(host, descriptors)
    assert files.read("two") == b"deeper"
    assert files.read("sub/up/sub/up/a.txt") == b"inner"
    assert files.kind("sub/up") == "folder"


OUTWARD = {
    "a link to a file": ("link", "../secret/key", "link"),
    "an absolute link": ("link", "{host}/secret/key", "link"),
    "a link to a folder": ("link", "../secret", "link/key"),
    "a link to the folder above": ("link", "..", "link/secret/key"),
    "a link to the root": ("link", "/", "link/etc/passwd"),
    "a link to the process": ("link", "/proc/self/environ", "link"),
    "a link to a device": ("link", "/dev/zero", "link"),
    "a link that goes out and in again": ("link", "../ws/a.txt", "link"),
    "a link that goes out by way of an inner folder": ("sub/link", "../../secret/key", "sub/link"),
}


@both_ways
@pytest.mark.parametrize("case", OUTWARD)
def test_a_link_that_leads_out_is_outside_and_never_read(host, case, descriptors):
    name, target, path = OUTWARD[case]
    (host / "ws" / name).symlink_to(target.format(host=host))
    files = look(host, descriptors)
    if case == "a link that goes out and in again" and not descriptors:
        assert files.read(path) == b"inner"
        return
    assert (host / "ws" / path).exists(), "the link must work for a naive reader, or this proves nothing"
    assert files.kind(path) == "outside"
    assert "outside" in attempted_read(files, path)
    stored = SnapshotFiles(host / "store", take(host / "ws", host / "store"))
    assert stored.kind(path) in ("outside", "absent", "other")
    attempted_read(stored, path)


@both_ways
@pytest.mark.parametrize(
    "path",
    [
        "../secret/key",
        "/etc/passwd",
        "sub/../../secret/key",
        "~/x",
        "C:\\x",
        "\\\\srv\\x",
        "a.txt\0.png",
        "",
        ".",
        "sub/..",
    ],
)
def test_a_path_that_leaves_the_workspace_is_outside(host, path, descriptors):
    assert look(host, descriptors).kind(path) == "outside"
    attempted_read(look(host, descriptors), path)
    stored = SnapshotFiles(host / "store", take(host / "ws", host / "store"))
    assert stored.kind(path) == "outside"
    attempted_read(stored, path)


@both_ways
def test_a_link_to_nothing_is_there_but_is_no_file(host, descriptors):
    (host / "ws" / "dangling").symlink_to("nowhere")
    (host / "ws" / "self").symlink_to("self")
    files = look(host, descriptors)
    assert files.kind("dangling") == "other"
    assert files.kind("self") == "other"
    assert files.kind("dangling/x") == "absent"
    (host / "ws" / "linked").symlink_to("sub")
    assert files.kind("linked/missing.txt") == "absent"


@both_ways
def test_a_hard_link_is_there_but_cannot_be_read(host, descriptors):
    os.link(host / "secret" / "key", host / "ws" / "hard")
    files = look(host, descriptors)
    assert files.kind("hard") == "hard_link"
    assert "hard link" in attempted_read(files, "hard")
    assert "hard" in list(files.paths())


@both_ways
@pytest.mark.timeout(20)
def test_pipes_sockets_and_folders_are_refused_without_waiting(host, descriptors, monkeypatch):
    monkeypatch.chdir(host / "ws")
    os.mkfifo("pipe")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("socket")
    listener.close()
    files = look(host, descriptors)
    for name in ("pipe", "socket"):
        assert files.kind(name) == "other"
        with pytest.raises(OSError, match="not a regular file"):
            files.read(name)
    with pytest.raises(IsADirectoryError):
        files.read("sub")


def test_a_naive_read_of_a_pipe_waits_for_ever(host):
    os.mkfifo(host / "ws" / "pipe")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", f"open({str(host / 'ws' / 'pipe')!r}).read()"], timeout=1)


def test_a_sparse_terabyte_is_refused_before_it_is_read(host):
    with (host / "ws" / "big").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match=f"larger than {MAX_FILE_BYTES}"):
        look(host).read("big")


def test_a_file_that_reports_no_size_is_read_no_further_than_the_limit(host):
    (host / "ws" / "grows").write_bytes(b"x" * 1000)
    with pytest.raises(OSError, match="larger than 999"):
        look(host).read("grows", limit=999)
    assert len(look(host).read("grows", limit=1000)) == 1000


def test_names_too_long_to_exist_are_absent(host):
    assert look(host).kind("n" * 5000) == "absent"


def test_odd_names_are_listed_and_read(host):
    for name in (b"new\nline", b"\xff\xfe", b"~home", b"C:x"):
        Path(os.fsdecode(os.path.join(os.fsencode(host / "ws"), name))).write_bytes(b"odd")
    files = look(host)
    listed = list(files.paths())
    assert len(listed) == 6
    assert {files.read(f"./{path}") for path in listed} == {b"odd", b"inner", b"deeper"}


def test_a_workspace_that_cannot_be_listed_says_so(host):
    inner = host / "ws"
    for _ in range(400):
        inner = inner / "deep"
    os.makedirs(inner)
    with pytest.raises(OSError, match="cannot be listed"):
        list(look(host).paths())


@contextlib.contextmanager
def an_ordinary_user():
    """Give up what only root may do, for a while."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_looked_at_is_an_error_and_not_a_missing_file():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "shut").mkdir()
        (root / "shut" / "x").write_text("x")
        (root / "locked.txt").write_text("x")
        (root / "locked.txt").chmod(0)
        (root / "shut").chmod(0)
        files = Workspace(root)
        with an_ordinary_user():
            assert files.kind("locked.txt") == "file"
            with pytest.raises(PermissionError):
                files.read("locked.txt")
            with pytest.raises(PermissionError):
                files.kind("shut/x")
            with pytest.raises(PermissionError):
                list(files.paths())
        (root / "shut").chmod(0o755)


SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pairs = [(a.encode(), b.encode()) for a, b in zip(sys.argv[1::2], sys.argv[2::2])]
print("ready", flush=True)
while True:
    for one, other in pairs:
        if libc.renameat2(-100, one, -100, other, 2):
            sys.exit("cannot exchange: " + os.strerror(ctypes.get_errno()))
"""


@pytest.fixture
def race(host):
    """A process that swaps an inner file and folder with links to the secret, without pause."""
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("no renameat2")
    ws = host / "ws"
    (ws / "folder").mkdir()
    (ws / "folder" / "key").write_bytes(b"inner")
    (host / "link_to_file").symlink_to(host / "secret" / "key")
    (host / "link_to_folder").symlink_to(host / "secret")
    swaps = [ws / "a.txt", host / "link_to_file", ws / "folder", host / "link_to_folder"]
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, *map(str, swaps)], stdout=subprocess.PIPE)
    assert swapper.stdout.readline() == b"ready\n"
    yield ws
    assert swapper.poll() is None, "the race was over before the test"
    swapper.kill()
    swapper.wait()


def run_race(read, tries):
    """How often reading gave inner content, the secret, and nothing."""
    counts = {"inner": 0, "escaped": 0, "refused": 0}
    for number in range(tries):
        try:
            data = read("a.txt" if number % 2 else "folder/key")
        except OSError:
            counts["refused"] += 1
        else:
            counts["escaped" if data == CANARY else "inner"] += 1
    return counts


@linux
def test_a_check_followed_by_an_open_loses_the_race(race):
    root = race.resolve()

    def checked_read(path):
        if not (root / path).resolve().is_relative_to(root):
            raise PermissionError("outside")
        return (root / path).read_bytes()

    deadline = time.monotonic() + 60
    escaped = 0
    while not escaped and time.monotonic() < deadline:
        escaped = run_race(checked_read, 500)["escaped"]
    assert escaped, "the race is too slow to prove anything"


@linux
def test_a_racing_writer_never_makes_a_read_leave_the_workspace(race):
    counts = run_race(Workspace(race).read, 4_000)
    assert counts["escaped"] == 0
    assert counts["inner"] and counts["refused"], f"both must happen, or nothing raced: {counts}"


@linux
@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_races_are_all_won(race):
    tries = size(100_000, 20_000, 100_000)
    counts = run_race(Workspace(race).read, tries)
    count("races of a reader and a swapped link", tries)
    count("contacts with anything outside", counts["escaped"])
    assert counts["escaped"] == 0
    assert counts["inner"] > 1_000 and counts["refused"] > 1_000, counts


PARTS = st.sampled_from(["a.txt", "sub", "b.txt", "..", ".", "", "up", "out", "in", "no"])


@settings(max_examples=150, deadline=None)
@given(
    path=st.lists(PARTS, min_size=1, max_size=8).map("/".join),
    targets=st.lists(st.lists(PARTS, min_size=1, max_size=5).map("/".join).filter(bool), min_size=3, max_size=3),
)
def test_no_maze_of_links_leads_out_and_the_system_agrees_on_what_is_inside(path, targets):
    with tempfile.TemporaryDirectory() as folder:
        host = Path(folder)
        (host / "no").write_bytes(CANARY)
        (host / "a.txt").write_bytes(CANARY)
        root = host / "ws"
        (root / "sub").mkdir(parents=True)
        (root / "a.txt").write_bytes(b"inner")
        (root / "sub" / "b.txt").write_bytes(b"inner")
        for name, target in zip(["up", "sub/out", "sub/in"], targets, strict=True):
            (root / name).symlink_to(target)
        try:
            assert Workspace(root).read(path) == b"inner"
        except OSError:
            if (found := _plain_inner_path(root, path)) is not None:
                raise AssertionError(f"{found} is an inner file and was refused") from None


def _plain_inner_path(root, path):
    """The inner file that a path without `..` and outward detours names by the system's own rules, if any."""
    if ".." in path.split("/") or path.startswith("/"):
        return None
    if not os.path.isfile(f"{root}/{path}"):  # pathlib drops the `/.` behind a file's name, the system does not
        return None
    place, seen = root, 0
    for part in path.split("/"):
        place = place / part
        while place.is_symlink():
            target = os.readlink(place)
            seen += 1
            if ".." in target.split("/") or seen > 30:
                return None
            place = place.parent / target
            if any(parent.is_symlink() for parent in [*place.parents][: len(Path(target).parts)]):
                return None
    return place if place.is_file() else None


def test_this_system_walks_by_descriptors():
    assert HAS_DESCRIPTORS or sys.platform == "win32"


def test_no_descriptor_is_left_open(host):
    files = look(host)
    (host / "ws" / "out").symlink_to("/etc")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for path in ["a.txt", "sub/b.txt", "out/passwd", "no", "sub", "a.txt/x"] * 20:
        files.kind(path)
        with contextlib.suppress(OSError):
            files.read(path)
    list(files.paths())
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before
