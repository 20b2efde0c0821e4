"""Runs in an object store, against a real S3 server on loopback: pushed, listed, read, pulled, and never lost."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from results_made import a_result, a_run
from waza.cli import run_command
from waza.cli._screen import console
from waza.errors import StoreError, UsageError
from waza.runs.folder import RunFolder
from waza.runs.remote import cache_of, list_remote, local_copy, pull, push, require
from waza.runs.remote_store import checked_url, is_url
from waza.runs.retention import tag_run, tags_of
from waza.runs.store import find_run, list_runs, read_run
from waza.runs.summary import summarize
from waza.suites.positions import read_project

SUITE = """
name: shop
config: {executor: mock}
graders: [{type: text, name: polite, config: {contains: [hello]}}]
tasks: [{id: greet, prompt: hi, mock: {output: hello you}}]
"""


KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def server():
    """An S3 server of this process: its address, and a client."""
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    import boto3

    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    address = f"http://127.0.0.1:{running.get_host_and_port()[1]}"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    yield address, boto3.client("s3", endpoint_url=address, **keys)
    running.stop()


@pytest.fixture
def s3(server, monkeypatch, tmp_path):
    """A client of that server, whose address and keys stand in the environment; caches are this test's own."""
    address, client = server
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in (KEYS | {"AWS_ENDPOINT_URL": address, "AWS_MAX_ATTEMPTS": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return client


@pytest.fixture
def bucket(s3):
    """The name of an empty bucket."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name


def forget_stores():
    """Let the environment be read anew: a process asks for its credentials once."""
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Call the command line in this process: s3fs need not be imported for each call."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def called(*arguments):
        console.cache_clear()
        capsys.readouterr()
        code = run_command([*map(str, arguments)])
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    yield called
    console.cache_clear()


def store(parent, name="run-001", results=(), ends=True, **more):
    """Store a run, finished or not."""
    results = [*results] or [a_result("a"), a_result("b", status="failed")]
    run = a_run(results, tasks=sorted({result.task_id for result in results}), id=name, **more)
    with RunFolder.create(parent, run) as folder:
        (folder.artifacts / "0123abcd").write_text("left by an agent")
        folder.append(*results)
        if ends:
            folder.finish(summarize(run))
    return folder.path


def go_on(folder, *results):
    """Add results to a stored run, as a resumed one does."""
    with RunFolder.open(folder) as opened:
        opened.append(*results)
        opened.finish(summarize(read_run(folder)))


def keys(s3, bucket):
    return [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]


def files(folder):
    """What a run folder holds, but for its place among the runs of its parent, which stays there."""
    every = [path for path in folder.rglob("*") if path.is_file() and path.name != ".start"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in every}


def test_a_pushed_run_is_read_as_it_was_written(s3, bucket, tmp_path):
    folder = store(tmp_path / "runs")
    pushed = push(folder, f"s3://{bucket}/team/runs/")
    assert (pushed.url, pushed.sent) == (f"s3://{bucket}/team/runs/run-001", 3)
    copy = local_copy(pushed.url)
    here, there = read_run(folder), read_run(copy)
    assert [*there.results] == [*here.results] and there.spec == here.spec
    assert (copy / "artifacts" / "0123abcd").read_text() == "left by an agent"
    assert {path.stat().st_mode & 0o077 for path in copy.rglob("*")} == {0}


def test_a_listing_from_a_store_tells_what_one_from_the_disk_tells(s3, bucket, tmp_path):
    large = [a_result(f"t{number}", output="x" * 20_000) for number in range(10)]
    for number, results in enumerate([(), large]):
        tag_run(store(tmp_path / "runs", f"run-{number:03}", results), ["release"] if number else [])
        push(tmp_path / "runs" / f"run-{number:03}", f"s3://{bucket}/runs")
    store(tmp_path / "runs", "run-009", ends=False)
    push(tmp_path / "runs" / "run-009", f"s3://{bucket}/runs")
    here, there = list_runs(tmp_path / "runs"), list_remote(f"s3://{bucket}/runs")
    assert [(run.run.id, run.summary, run.is_complete) for run in there] == [
        (run.run.id, run.summary, run.is_complete) for run in here
    ]
    assert [tags_of(run.folder) for run in there] == [[], ["release"], []]
    copied = files(cache_of(f"s3://{bucket}/runs"))
    assert "run-001/journal.jsonl" not in copied, "of an ended run only the journal's end is fetched"
    assert "run-009/journal.jsonl" in copied


def test_what_has_not_changed_is_not_fetched_again(s3, bucket, tmp_path):
    folder = store(tmp_path / "runs")
    url = push(folder, f"s3://{bucket}").url
    copy = local_copy(url)
    (copy / "artifacts" / "0123abcd").write_text("LEFT BY AN AGENT")
    listing = cache_of(f"s3://{bucket}") / "listing.json"
    assert [run.run.name for run in list_remote(f"s3://{bucket}")] == ["suite"]
    listing.write_text(listing.read_text().replace('"suite"', '"cached"'))
    assert (local_copy(url) / "artifacts" / "0123abcd").read_text() == "LEFT BY AN AGENT"
    assert [run.run.name for run in list_remote(f"s3://{bucket}")] == ["cached"]
    go_on(folder, a_result("b"))
    push(folder, f"s3://{bucket}")
    assert [result.status for result in read_run(local_copy(url)).results] == ["passed", "passed"]
    assert [(run.run.name, run.summary.succeeded) for run in list_remote(f"s3://{bucket}")] == [("suite", 2)]


def test_a_run_is_meant_by_its_id_the_start_of_it_or_latest(s3, bucket, tmp_path):
    for number in (10, 11, 20):
        push(store(tmp_path / "runs", f"run-{number:03}"), f"s3://{bucket}/p")
    assert local_copy(f"s3://{bucket}/p/latest").name == "run-020"
    assert local_copy(f"s3://{bucket}/p/run-02").name == "run-020"
    with pytest.raises(UsageError, match="is the start of 2 runs: run-010, run-011"):
        local_copy(f"s3://{bucket}/p/run-01")
    with pytest.raises(UsageError, match=r"no run 'run-021' at s3.*did you mean 'run-020'"):
        local_copy(f"s3://{bucket}/p/run-021")
    with pytest.raises(UsageError, match="there are no runs at"):
        local_copy(f"s3://{bucket}/elsewhere/latest")
    with pytest.raises(UsageError, match="names a bucket"):
        local_copy(f"s3://{bucket}")
    assert list_remote(f"s3://{bucket}/elsewhere") == []


def test_a_run_that_was_not_sent_to_its_end_is_never_taken_for_a_whole_one(s3, bucket, tmp_path):
    folder = store(tmp_path / "runs")
    url = push(folder, f"s3://{bucket}/p").url
    s3.delete_object(Bucket=bucket, Key="p/run-001/journal.jsonl")
    (found,) = list_remote(f"s3://{bucket}/p")
    assert found.summary is None and "has no journal.jsonl: it was not sent to its end" in found.problem
    with pytest.raises(StoreError, match=r"has no journal\.jsonl: it was not sent to its end; push it again"):
        local_copy(url)
    push(folder, f"s3://{bucket}/p")
    assert read_run(local_copy(url)).complete


ODD = ["../../owned", "..", "a/../../../owned", "/owned", "a//owned", "a\\..\\owned", ".ssh/owned", "C:owned", "a%00b"]


def test_a_name_in_a_bucket_never_leads_out_of_the_copy(s3, bucket, tmp_path):
    url = push(store(tmp_path / "runs"), f"s3://{bucket}/p").url
    for odd in ODD:
        s3.put_object(Bucket=bucket, Key=f"p/run-001/{odd}", Body=b"owned")
        with pytest.raises(StoreError, match=r"has a name that is not waza's .*; nothing was fetched"):
            local_copy(url)
        assert not (tmp_path / "caches").exists(), odd
        s3.delete_object(Bucket=bucket, Key=f"p/run-001/{odd}")
    assert local_copy(url).is_dir()


def test_a_run_with_an_odd_name_is_told_and_never_opened(s3, bucket, tmp_path):
    push(store(tmp_path / "runs"), f"s3://{bucket}/p")
    odd = ["..", "...", ".hidden", "-rf", "x" * 300, "a:b"]
    for name in (f"p/{name}/{file}" for name in odd for file in ("run.json", "journal.jsonl", "tags.json")):
        s3.put_object(Bucket=bucket, Key=name, Body=b"[]")
    problems = [run.problem for run in list_remote(f"s3://{bucket}/p") if run.problem]
    assert len(problems) == len(odd)
    assert all("has a name that is not waza's" in problem for problem in problems)
    assert {path.split("/")[0] for path in files(cache_of(f"s3://{bucket}/p"))} == {"listing.json"}


def test_a_copy_made_without_that_rule_would_leave_its_folder(s3, bucket, tmp_path):
    s3.put_object(Bucket=bucket, Key="p/run-001/../../owned", Body=b"owned")
    key = next(key for key in keys(s3, bucket))
    inner = tmp_path / "caches" / "runs" / "run-001"
    inner.mkdir(parents=True)
    (inner / key.removeprefix("p/run-001/")).write_bytes(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    assert (tmp_path / "caches" / "owned").exists()


def test_links_and_files_of_other_programs_are_not_sent(s3, bucket, tmp_path):
    folder = store(tmp_path / "runs")
    os.symlink("/etc/passwd", folder / "artifacts" / "link")
    (folder / ".half.tmp").write_text("half")
    (folder / "naïve.txt").write_text("mine")
    assert push(folder, f"s3://{bucket}").left_out == ["naïve.txt"]
    assert keys(s3, bucket) == [f"run-001/{name}" for name in ("artifacts/0123abcd", "journal.jsonl", "run.json")]


def test_a_run_that_is_going_on_or_has_an_odd_name_is_not_sent(s3, bucket, tmp_path):
    with pytest.raises(UsageError, match="could not be read again by that name"):
        push(store(tmp_path).rename(tmp_path / "my run!"), f"s3://{bucket}")
    with (
        RunFolder.create(tmp_path, a_run(tasks=["a"], id="run-001")) as folder,
        pytest.raises(UsageError, match="is still running"),
    ):
        push(folder.path, f"s3://{bucket}")


def test_results_in_a_store_are_never_overwritten_by_fewer_or_by_others(s3, bucket, tmp_path):
    here, elsewhere = store(tmp_path / "here", ends=False), tmp_path / "elsewhere"
    url = push(here, f"s3://{bucket}").url
    there = pull(url, elsewhere)
    go_on(there, a_result("c"))
    push(there, f"s3://{bucket}")
    with pytest.raises(StoreError, match=r"has more results than .*; fetch them with: waza runs pull s3://"):
        push(here, f"s3://{bucket}")
    go_on(here, a_result("d"))
    with pytest.raises(StoreError, match=r"has other results than .*--replace"):
        push(here, f"s3://{bucket}")
    with pytest.raises(StoreError, match="has results that the store does not"):
        pull(url, tmp_path / "here")
    assert read_run(local_copy(url)).results == read_run(there).results
    push(here, f"s3://{bucket}", replace=True)
    assert (local_copy(url) / "journal.jsonl").read_bytes() == (here / "journal.jsonl").read_bytes()


def test_a_pulled_run_is_brought_up_to_date_and_can_go_on(s3, bucket, tmp_path):
    here = store(tmp_path / "here", ends=False)
    url = push(here, f"s3://{bucket}").url
    there = pull(url, tmp_path / "there")
    assert files(there) == files(here)
    go_on(here, a_result("c"))
    push(here, f"s3://{bucket}")
    assert pull(f"s3://{bucket}/latest", tmp_path / "there") == there
    assert files(there) == files(here)
    assert find_run("run-0", [tmp_path / "there"]) == there


def test_tags_put_on_a_pulled_run_stay_when_it_is_pulled_again(s3, bucket, tmp_path):
    here = store(tmp_path / "here")
    tag_run(here, ["theirs"])
    url = push(here, f"s3://{bucket}").url
    there = pull(url, tmp_path / "there")
    tag_run(there, ["mine"])
    tag_run(here, ["new"])
    push(here, f"s3://{bucket}")
    pull(url, tmp_path / "there")
    assert tags_of(there) == ["mine", "new", "theirs"]


def test_a_push_keeps_the_tags_that_others_put_on_the_run_in_the_store(s3, bucket, tmp_path):
    here = store(tmp_path / "here")
    url = push(here, f"s3://{bucket}").url
    there = pull(url, tmp_path / "there")
    tag_run(there, ["theirs"])
    push(there, f"s3://{bucket}")
    assert push(here, f"s3://{bucket}").remarks == []
    assert tags_of(local_copy(url)) == ["theirs"]
    tag_run(here, ["mine"])
    push(here, f"s3://{bucket}")
    assert (tags_of(local_copy(url)), tags_of(here)) == (["mine", "theirs"], ["mine"])


def test_a_replaced_run_is_exactly_the_one_that_was_sent(s3, bucket, tmp_path):
    old = store(tmp_path / "old")
    (old / "artifacts" / "4567cdef").write_text("only in the old run")
    (old / "control").mkdir()
    (old / "control" / "run.json").write_text("{}")
    tag_run(old, ["theirs"])
    url = push(old, f"s3://{bucket}").url
    assert files(local_copy(url)).keys() > {"tags.json", "control/run.json"}
    assert [run.folder for run in list_remote(f"s3://{bucket}") if tags_of(run.folder)]
    new = store(tmp_path / "new", results=[a_result("c")])
    (new / "artifacts" / "0123abcd").write_text("other by an agent")
    s3.put_object(Bucket=bucket, Key="run-0010/x", Body=b"of another run")
    pushed = push(new, f"s3://{bucket}", replace=True)
    assert pushed.remarks == ["run-001: tags of the run that was replaced are gone: theirs"]
    assert [key for key in keys(s3, bucket) if "run-001/" in key] == [f"run-001/{name}" for name in sorted(files(new))]
    assert "run-0010/x" in keys(s3, bucket)
    assert {name: at for name, at in files(local_copy(url)).items() if not name.startswith(".")} == files(new)
    push(old, f"s3://{bucket}", replace=True)
    push(new, f"s3://{bucket}", replace=True)
    assert [run.folder for run in list_remote(f"s3://{bucket}") if tags_of(run.folder)] == []


def test_nobody_can_go_on_with_a_run_while_it_is_sent(s3, bucket, tmp_path, monkeypatch):
    from s3fs import S3FileSystem

    folder = store(tmp_path / "runs")
    sent = []

    async def meanwhile(self, source, target, *others, put=S3FileSystem._put_file, **more):
        with pytest.raises(StoreError, match="another run is writing it"):
            RunFolder.open(folder)
        sent.append(target)
        return await put(self, source, target, *others, **more)

    monkeypatch.setattr(S3FileSystem, "_put_file", meanwhile)
    push(folder, f"s3://{bucket}")
    assert len(sent) == 3
    RunFolder.open(folder).close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/runs", "runs are kept in folders, or at s3://, gs://"),
        ("file:///etc", "runs are kept in folders, or at s3://"),
        ("http://host/x", "runs are kept in folders, or at s3://"),
        ("s3://key:secret@bucket/runs", "an address has no password"),
        ("s3://bucket/runs?key=secret", "an address has no password and no"),
        ("s3://", "a bucket and plain names are needed"),
        ("s3:///runs", "a bucket and plain names are needed"),
        ("s3://bucket/../other", "a bucket and plain names are needed"),
        ("s3://bucket//runs", "a bucket and plain names are needed"),
        ("runs", "is no address of an object store"),
    ],
)
def test_an_address_that_is_none_is_refused_in_words(url, said):
    with pytest.raises(UsageError, match=said) as refusal:
        require(url)
    assert "secret" not in str(refusal.value).replace("AWS_SECRET", "")


def test_a_path_is_no_address():
    assert not any(map(is_url, ["runs", "./s3:/x", "C:\\runs", "a:b", "", Path("runs")]))
    assert checked_url("s3://bucket/a/b/") == "s3://bucket/a/b"


@pytest.mark.parametrize(("url", "library", "extra"), [("gs://b/r", "gcsfs", "gs"), ("az://b/r", "adlfs", "az")])
def test_a_library_that_is_not_there_is_named_with_its_extra(url, library, extra, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=rf"{library}.*pip install 'waza\[{extra}\]'"):
        require(url)


def test_a_store_that_does_not_answer_is_told_with_a_next_step(s3, tmp_path, monkeypatch, request):
    folder = store(tmp_path / "runs")
    with pytest.raises(StoreError, match=r"s3://no-such-bucket: .*; make the bucket, or mend the address"):
        push(folder, "s3://no-such-bucket")
    with pytest.raises(StoreError, match="make the bucket"):
        list_remote("s3://no-such-bucket/runs")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    forget_stores()
    request.addfinalizer(forget_stores)
    with pytest.raises(StoreError, match=r"cannot be listed: .*credentials come from the environment \(AWS_"):
        list_remote("s3://bucket/runs")


def test_the_projects_address_is_checked_when_it_is_loaded(tmp_path):
    (tmp_path / ".waza.yaml").write_text("paths: {results: 's3://bucket/runs'}\n")
    assert read_project(tmp_path)[1] == []
    (tmp_path / ".waza.yaml").write_text("paths:\n  results: ftp://host/runs\n")
    (problem,) = read_project(tmp_path)[1]
    assert problem.line == 2 and "runs are kept in folders, or at s3://" in problem.message


def test_a_project_whose_runs_stand_in_a_store(s3, bucket, call, tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    Path("eval.yaml").write_text(SUITE)
    Path(".waza.yaml").write_text(f"paths: {{results: 's3://{bucket}/runs'}}\n")
    first = call("run")
    assert first.returncode == 0 and f"sent: s3://{bucket}/runs/" in first.stdout, first.stderr
    Path("eval.yaml").write_text(SUITE.replace("hello you", "go away"))
    assert call("run", "-q").returncode == 1
    assert len(json.loads(f"[{','.join(call('runs', 'list', '--json').stdout.splitlines())}]")) == 2

    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path / "two")
    Path(".waza.yaml").write_text(f"paths: {{results: 's3://{bucket}/runs'}}\n")
    told = [json.loads(line) for line in call("runs", "list", "--json").stdout.splitlines()]
    assert [run["passed"] for run in told] == [0, 1]
    newest, before = (f"s3://{bucket}/runs/{run['run']}" for run in told)
    assert "0.00" in call("show", "latest", "-v").stdout
    assert "1 regressed" in call("compare", before, newest).stdout
    assert call("gate", newest, "--min-pass-rate", "1").returncode == 1
    assert call("gate", before, "--min-pass-rate", "1").returncode == 0
    assert "shop · 2 runs" in call("trend", "--path", f"s3://{bucket}/runs").stdout
    Path("eval.yaml").write_text(SUITE)
    graded = call("grade", newest, "--graders", "eval.yaml")
    assert graded.returncode == 1 and "sent: " in graded.stdout, graded.stderr
    assert len(list_remote(f"s3://{bucket}/runs")) == 3


def test_a_run_that_was_stopped_early_is_sent_too(s3, bucket, call):
    costly = "{output: hello you, usage: {cost_usd: 1}}"
    tasks = ", ".join(f"{{id: t{number}, prompt: hi, mock: {costly}}}" for number in range(4))
    Path("eval.yaml").write_text(SUITE.partition("tasks:")[0] + f"tasks: [{tasks}]\n")
    Path(".waza.yaml").write_text(f"paths: {{results: 's3://{bucket}/runs'}}\n")
    done = call("run", "--max-cost", "1", "--workers", "1")
    assert done.returncode == 3 and "continue with:  waza run" in done.stderr
    (found,) = list_remote(f"s3://{bucket}/runs")
    assert not found.is_complete and found.summary.succeeded < 4


def test_what_would_change_a_run_in_a_store_asks_for_a_copy_first(s3, bucket, call, tmp_path):
    url = push(store(tmp_path / "elsewhere"), f"s3://{bucket}").url
    Path("eval.yaml").write_text(SUITE)
    calls = [("runs", "tag", url, "x"), ("review", url), ("grade", url, "--resume"), ("run", "--resume", url)]
    for words in calls:
        done = call(*words)
        assert done.returncode == 2 and f"fetch it with: waza runs pull {url}" in done.stderr, words
    assert call("runs", "prune", "--path", f"s3://{bucket}", "--keep", "0").returncode == 2
    assert call("runs", "pull", url).stdout == "runs/run-001\n"
    assert call("runs", "tag", "run-001", "x").stdout == "run-001: x\n"
    assert call("runs", "push", "run-001", "--to", f"s3://{bucket}").returncode == 0
    assert "x" in call("runs", "list", "--path", f"s3://{bucket}", "--tag", "x").stdout


def test_a_run_that_could_not_be_sent_is_kept_and_sent_later(s3, call, waza):
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    Path("eval.yaml").write_text(SUITE)
    Path(".waza.yaml").write_text(f"paths: {{results: 's3://{name}/runs'}}\n")
    done = call("run")
    assert done.returncode == 3, "nothing failed, but not all is well"
    (folder,) = (path for path in Path("runs").iterdir() if path.is_dir())
    assert f"the run is safe in {folder}; send it with:  waza runs push {folder} --to s3://{name}/runs" in done.stderr
    assert read_run(folder).complete
    assert call("runs", "push").returncode == 3
    listed = call("runs")
    assert listed.returncode == 0 and folder.name in listed.stdout and "only runs on this machine" in listed.stderr
    s3.create_bucket(Bucket=name)
    assert waza(*done.stderr.rpartition("send it with:  waza ")[2].split()).returncode == 0
    assert read_run(local_copy(f"s3://{name}/runs/{folder.name}")).complete
