"""The index: every run in one SQLite file, so that thousands can be listed at once. It is derived data: safe to delete.

A run is read again when one of its files changed; its results are read when it is opened, and then only what the
journal grew by. The journal stays the authority: the index has numbers and offsets, no text of an agent's but names,
and an index file that cannot be used is thrown away.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec.inspect import multi_type_info
from msgspec.structs import replace

from waza import __version__
from waza.errors import StoreError
from waza.files.disk import open_regular, why
from waza.model import Run
from waza.reports.html.view import GradeMark, RunRow, TrialMarks
from waza.runs.folder import JOURNAL, RUN, read_run_and_hash
from waza.runs.journal import begun
from waza.runs.lazy_results import LazyResults, Places, StoredResult
from waza.runs.outcomes import ResultView, TrialOutcome, costs_of, outcome_of, shown_names
from waza.runs.records import End, Header, Note, pieces, read_result_view
from waza.runs.signing import Chain, read_key
from waza.runs.store import control_costs, in_order, trigger_order
from waza.server.run_row import file_stamp, folder_text, folders_in, inode_of, listed_run, size_of, stamp_of
from waza.spending import NO_COSTS, Costs
from waza.untrusted.text import well_formed

REFRESH_S = 1.0
"""How old the list of runs may be."""
WALK_SHARE = 0.02
"""The share of the time that may go into searching for folders with runs."""
_BATCH = 500

_ABOUT = msgspec.json.Decoder(RunRow)
_OUTCOME = msgspec.msgpack.Decoder(TrialOutcome)
_COSTS = msgspec.msgpack.Decoder(Costs)
_MARKS = msgspec.msgpack.Decoder(list[GradeMark])
_CHAIN = msgspec.msgpack.Decoder(Chain)
_PACK = msgspec.msgpack.Encoder()


class Index:
    """Every run below some folders; safe to use from several threads."""

    def __init__(self, parents: Callable[[], Iterable[Path]], file: Path | None = None) -> None:
        self._parents = parents
        self._refreshing, self._reading = threading.RLock(), threading.Lock()
        self._lock = threading.RLock()
        """Locked for one statement or one change. Lock order, against deadlocks: refreshing, reading, this one."""
        self._refreshed_at = self._walk_at = -1e9
        self._folders: list[Path] = []
        self._is_closed = False
        self._db = opened(file)

    def close(self) -> None:
        """Close the file once no thread uses it."""
        self._is_closed = True
        with self._refreshing, self._reading, self._lock:
            self._db.close()

    def refresh(self, *, now: bool = False) -> None:
        """Bring the list up to date with the disk, at most once a second unless `now`."""
        with self._refreshing:
            at = time.monotonic()
            if self._is_closed or (not now and at - self._refreshed_at < REFRESH_S):
                return
            if now or at >= self._walk_at:
                with suppress(OSError):  # a folder that went away while it was looked through
                    self._folders = list(self._parents())
                self._walk_at = time.monotonic() + (time.monotonic() - at) / WALK_SHARE
            known = dict(self._rows("SELECT folder, stamp || CASE is_live WHEN 1 THEN 'live' ELSE '' END FROM runs"))
            here = {folder_text(folder): folder for parent in self._folders for folder in folders_in(parent)}
            if gone := [(name,) for name in known.keys() - here.keys()]:
                with self._changing() as db:
                    db.executemany("DELETE FROM runs WHERE folder = ?", gone)
                    db.execute("DELETE FROM results WHERE run NOT IN (SELECT id FROM runs)")
            for name, folder in here.items():
                stamp = stamp_of(folder)
                if self._is_closed:
                    return
                if known.get(name) != stamp:
                    self._take(folder, stamp)
            self._refreshed_at = time.monotonic()

    def select(self, where: str = "1", values: Sequence[object] = (), order: str = "", most: int = -1, skip: int = 0
               ) -> list[RunRow]:  # fmt: skip
        """Return the runs that match conditions; values of others are passed as parameters only."""
        query = f"SELECT about FROM runs WHERE about IS NOT NULL AND {where} {order} LIMIT ? OFFSET ?"
        return [_ABOUT.decode(row[0]) for row in self._rows(query, (*values, most, skip))]

    def table(self, query: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Return the rows of a query; the query itself must not contain text of others."""
        return self._rows(query, values)

    def find(self, key: str) -> RunRow | None:
        """Return a run by its name in addresses."""
        rows = self.select("key = ?", (key,))
        return rows[0] if rows else None

    def filled(self, listed: RunRow, run: Run) -> Run:
        """Return a run with its results, in the spec's order; each is read from the journal when it is accessed."""
        self._read_results(listed.key, listed.path, run)
        rows = self._rows(
            "SELECT place, length, outcome FROM results WHERE run = (SELECT id FROM runs WHERE key = ?)", (listed.key,)
        )
        places, latest = Places(), dict[tuple[str, int], int]()
        for place, length, blob in rows:
            one = StoredResult(place, length, _OUTCOME.decode(blob))
            latest[one.outcome.task_id, one.outcome.trial] = len(places)
            places.append(one)
        journal = listed.path / JOURNAL
        triggers = [latest.pop(key) for key in trigger_order(run, latest)]
        results = [latest.pop(key) for key in in_order(run, latest)[0]]
        [(costs,)] = self._rows("SELECT other_costs FROM runs WHERE key = ?", (listed.key,)) or [(None,)]
        other_costs = (_COSTS.decode(costs) if costs else NO_COSTS) + control_costs(listed.path, run)
        for left in latest.values():  # of tasks that are not in the spec any more
            other_costs += places[left].outcome.costs
        return replace(
            run,
            results=LazyResults(journal, places, results),
            triggers=LazyResults(journal, places, triggers),
            integrity=self._integrity(listed.key, listed.path),
            other_costs=other_costs,
        )

    def marks(self, key: str, tasks: Sequence[str]) -> list[TrialMarks]:
        """Return the grades of every trial of some tasks."""
        query = "SELECT task, trial, grades FROM results WHERE run = (SELECT id FROM runs WHERE key = ?) AND task = ?"
        rows = [(task, row) for task in tasks for row in self._rows(query, (key, well_formed(task)))]
        return [TrialMarks(task, row[1], _MARKS.decode(row[2])) for task, row in rows]

    def damaged(self, key: str) -> int:
        """Return how many places of a run's journal could not be read."""
        return int(next(iter(self._rows("SELECT damaged FROM runs WHERE key = ?", (key,))), (0,))[0])

    def _integrity(self, key: str, folder: Path) -> str:
        """Return what readers of a run whose results were read cannot rely on."""
        found = self._rows("SELECT chain, run_json FROM runs WHERE key = ?", (key,))
        if not found or not found[0][0]:
            return ""
        chain, fitting = _CHAIN.decode(found[0][0]), found[0][1].split()
        return chain.integrity(is_run_changed=bool(fitting) and read_run_and_hash(folder)[1] not in fitting)

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock:
            return self._db.execute(query, tuple(values)).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._db:
            yield self._db

    def _take(self, folder: Path, stamp: str) -> None:
        """Read one run and store its row."""
        name = folder_text(folder)
        with self._changing() as db:
            key = self._key(folder)
            db.execute("INSERT OR IGNORE INTO runs (key, folder, stamp) VALUES (?, ?, '')", (key, name))
        listed = listed_run(RunRow(key=key, folder=name, stamp=stamp), self.filled)
        summary = listed.summary
        columns = {
            "stamp": stamp, "about": msgspec.json.encode(listed), "suite": listed.suite, "engine": listed.engine,
            "model": listed.model, "tags": "\x1f".join(["", *listed.tags, ""]), "started": listed.started,
            "place": listed.place or listed.started,
            "verdict": listed.verdict, "is_live": listed.is_live, "is_complete": listed.is_complete,
            "tasks": summary.total_tests if summary else None, "passed": summary.succeeded if summary else None,
            "rate": summary.decided_rate if summary else None, "score": summary.weighted_score if summary else None,
            "cost": summary.cost_usd if summary else None, "tokens": summary.agent_tokens if summary else None,
            "duration_ms": summary.duration_ms if summary else None,
        }  # fmt: skip
        with self._changing() as db:
            sets = ", ".join(f"{column} = ?" for column in columns)
            db.execute(f"UPDATE runs SET {sets} WHERE folder = ?", (*columns.values(), name))

    def _key(self, folder: Path) -> str:
        """Return a run's name in addresses: its folder's, and a mark where another run has the same."""
        name = well_formed(folder.name)
        taken = self._rows("SELECT 1 FROM runs WHERE key = ? AND folder <> ?", (name, folder_text(folder)))
        return name if not taken else f"{name}~{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"

    def _read_results(self, key: str, folder: Path, run: Run) -> None:
        """Read the journal from where it was read to before; from its start if the run was made again."""
        journal = folder / JOURNAL
        fits = run.suite.fingerprints
        with self._reading:
            made_from = f"{file_stamp(folder / RUN)} {inode_of(journal)}"
            found = self._rows("SELECT id, made_from, read_to, chain FROM runs WHERE key = ?", (key,))
            if not found:
                raise StoreError(f"{folder}: was removed")
            row, before, read_to, followed = found[0]
            chain = _CHAIN.decode(followed) if followed else Chain()
            if before != made_from or read_to > size_of(journal):
                read_to, chain = 0, Chain()
                with self._changing() as db:
                    db.execute("DELETE FROM results WHERE run = ?", (row,))
                    fresh = "made_from = ?, read_to = 0, damaged = 0, chain = NULL, run_json = '', other_costs = NULL"
                    db.execute(f"UPDATE runs SET {fresh} WHERE id = ?", (made_from, row))
            if read_to >= size_of(journal):
                return
            batch: list[tuple[object, ...]] = []
            damaged, fitting, other = 0, list[str](), NO_COSTS
            ignored = chain.foreign + chain.misplaced
            for entry in read_on(journal, read_to, chain):
                read_to = entry.end
                damaged += entry.record is None and ignored == chain.foreign + chain.misplaced
                ignored = chain.foreign + chain.misplaced
                if isinstance(entry.record, Header) and entry.record.run_json:
                    fitting = entry.record.run_json
                if isinstance(result := entry.record, ResultView):
                    if _fits(result, fits):
                        batch.append(_packed(row, entry.offset, entry.length, result))
                    else:
                        other += costs_of(result)
                if len(batch) >= _BATCH:
                    self._keep(row, batch, read_to, damaged, chain, fitting, other)
                    batch, damaged, other = [], 0, NO_COSTS
            self._keep(row, batch, read_to, damaged, chain, fitting, other)

    def _keep(
        self,
        row: int,
        batch: list[tuple[object, ...]],
        read_to: int,
        damaged: int,
        chain: Chain,
        fitting: list[str],
        other: Costs,
    ) -> None:
        """Write down what was read; what a replaced result was billed is added to `other`, which no result has."""
        with self._changing() as db:
            for values in batch:
                found = "SELECT outcome FROM results WHERE run = ? AND task = ? AND trial = ?"
                for (blob,) in db.execute(found, values[:3]).fetchall():
                    other += _OUTCOME.decode(blob).costs
                db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            for (blob,) in db.execute("SELECT other_costs FROM runs WHERE id = ?", (row,)).fetchall():
                other += _COSTS.decode(blob) if blob else NO_COSTS
            db.execute(
                "UPDATE runs SET read_to = ?, damaged = damaged + ?, chain = ?, other_costs = ? WHERE id = ?",
                (read_to, damaged, _PACK.encode(chain), _PACK.encode(other), row),
            )
            if fitting:
                db.execute("UPDATE runs SET run_json = ? WHERE id = ?", (" ".join(fitting), row))


def _fits(result: ResultView, fits: Mapping[str, str]) -> bool:
    """Return whether a result was made from the task as it is now."""
    return result.fingerprint in ("", fits.get(result.task_id, result.fingerprint))


def _packed(row: int, place: int, length: int, result: ResultView) -> tuple[object, ...]:
    names = shown_names(result)
    marks = [GradeMark(n, g.status, g.score, g.weight) for n, g in zip(names, result.grades, strict=True)]
    task = well_formed(result.task_id)
    return row, task, result.trial, place, length, _PACK.encode(outcome_of(result)), _PACK.encode(marks)


# The SQLite file: its tables, and how it is opened.

_TABLES = """
CREATE TABLE runs (
  id INTEGER PRIMARY KEY, key TEXT UNIQUE, folder TEXT UNIQUE, stamp TEXT, about BLOB,
  suite TEXT, engine TEXT, model TEXT, tags TEXT, started REAL, place REAL, verdict TEXT,
  is_live INTEGER, is_complete INTEGER,
  tasks INTEGER, passed INTEGER, rate REAL, score REAL, cost REAL, tokens INTEGER, duration_ms REAL,
  made_from TEXT NOT NULL DEFAULT '', read_to INTEGER NOT NULL DEFAULT 0, damaged INTEGER NOT NULL DEFAULT 0,
  chain BLOB, run_json TEXT NOT NULL DEFAULT '',
  other_costs BLOB
);
CREATE INDEX by_suite ON runs (suite, model, started);
CREATE TABLE results (
  run INTEGER, task TEXT, trial INTEGER, place INTEGER, length INTEGER, outcome BLOB, grades BLOB,
  PRIMARY KEY (run, task, trial)
) WITHOUT ROWID;
"""


def opened(file: Path | None) -> sqlite3.Connection:
    """Return the index in a file, made again if damaged or of another version; in memory where none can be written."""
    if file is not None:
        for _ in range(2):
            with suppress(sqlite3.Error, OSError):
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file.touch(mode=0o600)  # SQLite gives its journal files the same mode
                return _connected(str(file))
            with suppress(OSError):
                for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
                    file.with_name(name).unlink(missing_ok=True)
    return _connected(":memory:")


def _connected(name: str) -> sqlite3.Connection:
    db = sqlite3.connect(name, check_same_thread=False, timeout=10.0)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        found = db.execute("PRAGMA user_version").fetchone()[0]
        version = _version()
        if found not in (0, version):
            raise sqlite3.DatabaseError("another version")
        if found == 0:
            db.executescript(f"{_TABLES} PRAGMA user_version = {version};")
        db.execute("SELECT count(*) FROM runs").fetchone()
        return db
    except BaseException:
        db.close()
        raise


@cache
def _version() -> int:
    """Return a number that changes with the tables and with the shape of every record in them."""
    shapes = multi_type_info([RunRow, TrialOutcome, GradeMark, Chain, Costs])
    return crc32(f"{__version__} {_TABLES} {shapes}".encode()) >> 1 or 1


# Reading a journal from an offset on, for the index and the live view.


class JournalEntry(NamedTuple):
    """A record with its place in the file; None where the bytes are no readable record."""

    offset: int
    length: int
    record: Header | ResultView | Note | End | None

    @property
    def end(self) -> int:
        """Where the next record begins."""
        return self.offset + self.length


def read_on(journal: Path, start: int, chain: Chain) -> Iterator[JournalEntry]:
    """Yield every record from an offset on, up to one that is still being written. Raises StoreError.

    `chain` is what is known of the records before, and follows these; a record that another program wrote is None.
    """
    key = read_key()
    try:
        with open_regular(journal) as file:
            if not start:
                begun(file, key, chain)
            file.seek(start)
            for piece in pieces(file):
                if piece.is_torn:
                    return
                is_own = piece.payload is not None and chain.accept(piece.payload, key)
                record = read_result_view(piece.payload) if is_own and piece.payload is not None else None
                yield JournalEntry(start + piece.offset, len(piece.raw), record)
    except OSError as error:
        raise StoreError(f"{journal}: cannot be read: {why(error)}") from error
