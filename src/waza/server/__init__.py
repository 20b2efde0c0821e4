"""The dashboard: local pages over stored runs. Reads results, renders on the server, never writes a run.

`guard.py` decides who may ask, `index.py` knows the runs, `pages/` holds one file per page; the folder is the registry.
"""
