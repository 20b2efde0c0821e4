"""One file per kind of agent; the file's name is the `executor:` and `--engine` name."""
