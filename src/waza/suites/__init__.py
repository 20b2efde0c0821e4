"""YAML in, a checked suite out: positions, hints, JSON Schema. Nothing here runs an agent."""
