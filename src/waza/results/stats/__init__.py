"""What the numbers of runs can and cannot show: pure functions, the same answer for the same results every time.

`repeats` (pass@k, pass^k), `resampling` (bootstrap), `paired` (exact tests of a difference), `power` (what so few tasks
could show), `sequence` (intervals one may look at after every trial), `suite` (a run), `comparison` (two runs).
Wilson's interval stands in `results/scores.py`. numpy and scipy are loaded when a number needs them.
"""
