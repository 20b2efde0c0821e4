"""A small MCP server on standard input and output: one tool, `add`. With an argument, it leaves a file there first."""

import json
import sys
from pathlib import Path

TOOL = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
}


def answer(method, params):
    if method == "initialize":
        version = params.get("protocolVersion", "2024-11-05")
        about = {"name": "calculator", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        given = params["arguments"]
        return {"content": [{"type": "text", "text": f"the sum is {given['a'] + given['b']}"}]}
    return {}


for witness in sys.argv[1:]:
    Path(witness).touch()
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
