"""Keys of model servers: from the environment alone, and only to the server they are meant for."""

from __future__ import annotations

import os

from waza.errors import SpecError

NO_KEY = "no-key-needed"


def key_for(named: str, usual: str, *, has_own_url: bool) -> str:
    """Return the key in the variable `named`, else in the `usual` one, which goes to its vendor's address alone.

    Raises SpecError where a key is needed and its variable is not set.
    """
    if named or not has_own_url:
        variable = named or usual
        if not (key := os.environ.get(variable, "").strip()):
            raise SpecError(f"judge: the environment variable {variable} is not set; it must hold the judge's key")
        return key
    return NO_KEY
