"""One file per grader; the file's name is its YAML `type`. Files that start with `_` are helpers."""
