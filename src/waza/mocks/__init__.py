"""Stand-ins for tools: MCP servers and programs whose answers a suite declares.

    agent ─ MCP ─ mcp_server.py ─┐ a socket   ┌ desk.py: which answer fits, the state, every call
    agent ─ PATH ─ program.py ───┴─ place.py ─┘ in waza's own process

The answers never leave waza's process, so an agent cannot look them up in its room. It is no sandbox: a program that
is called by its full path is the real one.
"""
