"""Readers of recorded traces, one file per format; other packages announce theirs as entry points of `waza.traces`."""

from waza.plugins import Folder

READERS = Folder("traces", "Reader")
