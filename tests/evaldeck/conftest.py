"""`evaldeck` is `waza.evaldeck` here, so that code written for it runs unchanged."""

import sys
from importlib import import_module

for name in ("", ".config", ".evaluator", ".graders", ".metrics", ".results", ".test_case", ".trace"):
    sys.modules[f"evaldeck{name}"] = import_module(f"waza.evaldeck{name}")
