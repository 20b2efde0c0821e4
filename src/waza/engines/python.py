"""The `python` engine: a Python function as an agent, in waza's own process."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import re
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace
from pydantic import PrivateAttr, field_validator

from waza.engines._base import Engine, Room
from waza.engines._function import find_function, told, with_context
from waza.engines._turns import join_turns
from waza.errors import EngineError, TraceError
from waza.model import JSON, Task, Trace, Trial
from waza.sandbox.texts import well_formed, well_formed_data

_AGENT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
