#!/bin/sh
# A tiny agent: answers in capitals and keeps a note in its workspace.
printf '%s\n' "$1" >> notes.txt
printf '%s\n' "$1" | tr '[:lower:]' '[:upper:]'
