# Passes when the agent left a report: exit 0 passes, 1 to 125 fails.
test -f "$WAZA_WORKSPACE_DIR/report.md" || { echo "report.md is missing" >&2; exit 1; }
