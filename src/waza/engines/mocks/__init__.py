"""Stand-ins for tools: MCP servers and programs whose answers a suite declares.

    agent ─ MCP ─ relay.py ────┐ a socket   ┌ mcp_server.py ─┐
    agent ─ PATH ─ program.py ─┴─ place.py ─┴────────────────┴ desk.py: which answer fits, the state, every call

The answers never leave waza's own process, so an agent cannot look them up in its room. It is no sandbox: a program
that is called by its full path is the real one.
"""
