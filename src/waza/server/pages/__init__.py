"""The pages of the dashboard, one file each; `registry.py` describes the interface of such a file."""
