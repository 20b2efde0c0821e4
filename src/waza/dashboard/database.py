"""The SQLite file of the index: its tables, and how it is opened. What stands in it is `index.py`'s business."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from functools import cache
from pathlib import Path
from zlib import crc32

from msgspec.inspect import multi_type_info

from waza import __version__
from waza.dashboard.listed import Listed, SeenMark
from waza.results.outcomes import Outcome
from waza.results.signing import Chain
from waza.spending import Costs

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
    """Return the index in a file; one that is damaged or of another version is made anew, else it is in memory."""
    if file is not None:
        for _ in range(2):
            with suppress(sqlite3.Error, OSError):
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file.touch(mode=0o600)  # what stands beside it gets the same mode
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
    shapes = multi_type_info([Listed, Outcome, SeenMark, Chain, Costs])
    return crc32(f"{__version__} {_TABLES} {shapes}".encode()) >> 1 or 1
