"""What the numbers of runs can and cannot show: pure functions, the same answer for the same results every time.

One run: `repeats` (pass@k, pass^k), `resampling` (bootstrap), `suite`. Two runs: `pairs`, `paired` (exact tests),
`power` (what so few tasks could show), `verdicts`, `details`, `comparison` with its records in `changes`. Good enough
or not: `gates`, `baseline`, their records in `needs`. One task while it is tried: `sequence`. Many runs: `trends`.
Wilson's interval stands in `results/scores.py`. numpy is loaded where two runs are compared.
"""
