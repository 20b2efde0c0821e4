"""The environment that programs get: a short list of harmless variables, and what the caller declares.

Everything else of waza's own environment stays out: secrets, and variables that make programs run foreign code
(PYTHONPATH, LD_PRELOAD, BASH_ENV, NODE_OPTIONS, GIT_*, …). PYTHONSAFEPATH is not set here: it would keep a script in
the workspace from importing the file beside it. A grader that runs Python in a folder it does not trust declares it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_PASSED = ("PATH", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "HOME", "TMPDIR")
_PASSED_ON_WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "WINDIR", "USERPROFILE", "TEMP", "TMP")
_QUIET = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}


def base_environment(extra: Mapping[str, str], *, home: Path | None) -> dict[str, str]:
    """Return the variables of a program: PATH, language and time zone, nothing that waits for a person, then `extra`.

    With `home` the program's home and its temporary files are there, and not the user's.
    """
    passed = _PASSED + (_PASSED_ON_WINDOWS if os.name == "nt" else ())
    own = {name: os.environ[name] for name in os.environ if name.upper() in passed or name.startswith("LC_")}
    private = {} if home is None else dict.fromkeys(("HOME", "TMPDIR", "USERPROFILE", "TEMP", "TMP"), str(home))
    if os.name != "nt":
        private = {name: path for name, path in private.items() if name in _PASSED}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **own, **_QUIET, **private, **extra}
