"""Reading and evaluating what others wrote, within limits: nothing here knows graders or suites.

text                    lone surrogates, control characters, case; numbers for people
json, json_schema       strict JSON; JSON Schema without fetching
yaml                    YAML with positions and budgets
patterns                regular expressions (lookaround: what RE2 cannot do; universal: can a pattern fail at all)
python_assertions       Python expressions (python_expressions: what is accepted; python_evaluator: the worker)
javascript_assertions   JavaScript expressions
constant_assertions     expressions of both languages that cannot fail or cannot pass
"""
