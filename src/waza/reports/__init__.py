"""One file per report format; each turns a Run into text."""
