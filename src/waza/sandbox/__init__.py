"""What holds hostile things: patterns, assertions, files, processes. Nothing here knows graders or specs."""
