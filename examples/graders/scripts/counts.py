"""Reads what happened as JSON, prints a verdict as JSON."""

import json
import sys

seen = json.load(sys.stdin)
found = [word for word in ("1", "2", "3") if word in seen["output"]]
print(json.dumps({"score": len(found) / 3, "passed": len(found) == 3, "message": f"found {', '.join(found)}"}))
