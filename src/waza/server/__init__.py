"""The dashboard: local pages over stored runs. Reads results, renders on the server, never writes a run.

`guard.py` decides on access, `index.py` lists the runs, `pages/` has one file per page; the folder is the registry.
"""
