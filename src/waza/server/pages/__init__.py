"""The pages of the dashboard, one file each; `registry.py` says what such a file holds."""
