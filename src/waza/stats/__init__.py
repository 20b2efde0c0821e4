"""What the numbers of runs can and cannot show: pure functions, the same answer for the same results every time.

One run: `repeats` (pass@k, pass^k), `resampling` (bootstrap), `suite`. Two runs: `pairs`, `paired` (exact tests),
`power` (what so few tasks could show), `verdicts`, `details`, `comparison` with its records in `changes`. Good enough
or not: `gates`, `baseline`, their records in `needs`. With and without a skill: `impact`, its numbers in
`impact_estimates`, its records in `impact_records`. One task while it is tried: `sequence`. Many runs: `trends`.
A judge beside people: `agreement` (kappa, alpha), `corrected` (the pass rate without the judge's error),
`clusters` (several outputs of one task).
Wilson's interval stands in `stats/scores.py`. numpy is loaded where two runs are compared.
"""
