"""Mocks of tools: MCP servers and programs whose answers a suite declares.

    agent ─ MCP ─ relay.py ────┐ a socket   ┌ mcp_server.py ─┐
    agent ─ PATH ─ program.py ─┴─ serve.py ─┴────────────────┴ responder.py: which answer fits, the state, every call

The answers never leave waza's own process, so an agent cannot find them in its trial folder. This is not a sandbox: a
program that is called by its full path is the real one.
"""
