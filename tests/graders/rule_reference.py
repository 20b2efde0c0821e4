"""Two independent readings of rules over traces: LTLf formulas on sequential traces, and the definition word by word.

Both are slow and plain on purpose; the grader must agree with them. Calls are told apart by their names alone.
"""

from functools import cache
from math import inf

TRUE = ("true",)


def ltlf(formula, trace, place=0):
    """Return whether a formula with past operators holds at a place of a finite sequence of names."""

    @cache
    def at(one, i):
        kind, *parts = one
        if kind == "true":
            return True
        if kind == "is":
            return i < len(trace) and trace[i] == parts[0]
        if kind == "not":
            return not at(parts[0], i)
        if kind == "and":
            return all(at(part, i) for part in parts)
        if kind == "or":
            return any(at(part, i) for part in parts)
        if kind == "next":
            return i + 1 < len(trace) and at(parts[0], i + 1)
        if kind == "previous":
            return i > 0 and at(parts[0], i - 1)
        if kind == "until":
            return any(at(parts[1], j) and all(at(parts[0], k) for k in range(i, j)) for j in range(i, len(trace)))
        if kind == "since":
            return any(at(parts[1], j) and all(at(parts[0], k) for k in range(j + 1, i + 1)) for j in range(i, -1, -1))
        raise ValueError(kind)

    return at(formula, place)


def no(formula):
    return ("not", formula)


def eventually(formula):
    return ("until", TRUE, formula)


def always(formula):
    return no(eventually(no(formula)))


def implies(one, other):
    return ("or", no(one), other)


def weak_next(formula):
    return no(("next", no(formula)))


def weak_until(one, other):
    return ("or", ("until", one, other), always(one))


def soon(formula, steps, step="next"):
    return (step, formula if steps == 1 else ("or", formula, soon(formula, steps - 1, step)))


def formula_of(rule):
    """Return a rule without counts as a formula, and one that says whether it applies; names differ in their roles."""
    key = next(key for key in ("require", "forbid", "only") if key in rule)
    x = ("is", rule[key])
    if "between" in rule:
        a, b = (("is", name) for name in rule["between"])
        opens = ("and", a, ("next", eventually(b)))
        inside = {"require": ("until", no(b), x), "forbid": ("until", no(x), b), "only": ("until", x, b)}[key]
        return always(implies(opens, ("next", inside))), eventually(opens)
    if "after" in rule:
        return _after(rule, key, x)
    if "before" in rule:
        return _before(rule, key, x)
    if "until" in rule:
        b = ("is", rule["until"])
        bodies = {"require": ("until", no(b), x), "forbid": weak_until(no(x), b), "only": weak_until(x, b)}
        return bodies[key], TRUE
    return {"require": eventually(x), "forbid": always(no(x)), "only": always(x)}[key], TRUE


def _after(rule, key, x):
    a = ("is", rule["after"])
    if "within" in rule:
        near = soon(x if key == "require" else no(x) if key == "only" else x, rule["within"])
        body = near if key == "require" else no(near)
    elif "until" in rule or rule.get("fresh"):
        b = ("is", rule["until"]) if "until" in rule else a
        if key == "require":
            body = ("next", ("until", no(b), x))
        else:
            body = weak_next(weak_until(no(x) if key == "forbid" else x, b))
    elif key == "require":
        body = ("next", eventually(x))
    else:
        body = weak_next(always(no(x) if key == "forbid" else x))
    return always(implies(a, body)), eventually(a)


def _before(rule, key, x):
    b = ("is", rule["before"])
    wrong = x if key != "only" else no(x)
    if "within" in rule:
        found = soon(wrong, rule["within"], "previous")
    elif rule.get("fresh"):
        found = ("previous", ("since", no(b), ("and", wrong, no(b))))
    else:
        found = ("previous", ("since", TRUE, wrong))
    return always(implies(b, found if key == "require" else no(found))), eventually(b)


def status_by_formula(rule, names):
    """Return the status of a rule on a sequence of names."""
    formula, applies = formula_of(rule)
    if not (names or applies == TRUE) or not ltlf(applies, names):
        return {"skip": "not_applied", "fail": "violated", "pass": "passed"}[rule.get("when_absent", "skip")]
    return "passed" if ltlf(formula, names) else "violated"


# --- the definition, for concurrent calls and sub-agents -------------------------------------------------------------


def order_of(calls, is_known=True):
    """Return a function that says whether a call, by its index, comes before another one."""
    timed = {}
    for call in calls:
        timed[call["turn"]] = timed.get(call["turn"], True) and "start_ms" in call and "duration_ms" in call

    def precedes(i, j):
        one, other = calls[i], calls[j]
        if i == j:
            return False
        if not is_known:
            return i < j
        if one["turn"] != other["turn"]:
            return one["turn"] < other["turn"]
        if timed[one["turn"]]:
            ends = [call["start_ms"] + call["duration_ms"] for call in (one, other)]
            return ends[0] <= other["start_ms"] and not ends[1] <= one["start_ms"]
        parents = [call.get("parent_tool_call_id") for call in (one, other)]
        return parents[0] is not None and parents[0] == parents[1] and i < j

    return precedes


def status_by_definition(rule, calls, count, precedes):
    """Return the status of a rule on the first calls."""
    everyone = list(range(count))
    parent = [call.get("parent_tool_call_id") for call in calls]
    agent = rule.get("agent", "all")
    groups = [everyone]
    if agent in ("main", "sub"):
        groups = [[i for i in everyone if (parent[i] is None) == (agent == "main")]]
    elif agent == "each":
        owners = dict.fromkeys([None, *(parent[i] for i in everyone)])
        groups = [[i for i in everyone if parent[i] == owner] for owner in owners]
    verdicts = [_holds(rule, calls, window) for group in groups for window in _windows(rule, calls, group, precedes)]
    if not verdicts:
        return {"skip": "not_applied", "fail": "violated", "pass": "passed"}[rule.get("when_absent", "skip")]
    return "passed" if all(verdicts) else "violated"


def prefix_by_definition(rule, calls, precedes):
    """Return the smallest n such that the rule is violated on the first m calls for every m from n to the end."""
    n = len(calls)
    while n > 0 and status_by_definition(rule, calls, n - 1, precedes) == "violated":
        n -= 1
    return n


def _holds(rule, calls, window):
    def number(name):
        return sum(calls[i]["tool_name"] == name for i in window)

    if "require" in rule:
        return number(rule["require"]) > 0
    if "forbid" in rule:
        return number(rule["forbid"]) == 0
    if "only" in rule:
        return number(rule["only"]) == len(window)
    return rule.get("at_least", 0) <= number(rule["count"]) <= rule.get("at_most", inf)


def _windows(rule, calls, group, precedes):
    def named(name):
        return [i for i in group if calls[i]["tool_name"] == name]

    if rule.get("per") == "turn":
        for turn in sorted({calls[i]["turn"] for i in group}):
            yield [i for i in group if calls[i]["turn"] == turn]
    elif "per" in rule:
        size = rule["per"]["calls"]
        yield from [group[i : i + size] for i in range(max(1, len(group) - size + 1))]
    elif "between" in rule:
        for a in named(rule["between"][0]):
            ends = [b for b in named(rule["between"][1]) if precedes(a, b)]
            following = [b for b in ends if not any(precedes(other, b) for other in ends)]
            after = [y for y in group if precedes(a, y) and y not in ends and not any(precedes(b, y) for b in ends)]
            if ends:
                yield [y for y in after if any(precedes(y, b) for b in following)]
    elif "before" in rule:
        triggers = named(rule["before"])
        for b in triggers:
            window = [y for y in group if precedes(y, b)]
            if rule.get("fresh"):
                between = [other for other in triggers if precedes(other, b)]
                window = [y for y in window if y not in between and not any(precedes(y, other) for other in between)]
            yield [y for y in window if _far(y, b, group, precedes) < rule.get("within", inf)]
    elif "after" in rule:
        triggers = named(rule["after"])
        for a in triggers:
            ends = triggers if rule.get("fresh") else named(rule.get("until"))
            ends = [end for end in ends if precedes(a, end)]
            window = [y for y in group if precedes(a, y) and y not in ends and not any(precedes(e, y) for e in ends)]
            yield [y for y in window if _far(a, y, group, precedes) < rule.get("within", inf)]
    elif "until" in rule:
        ends = named(rule["until"])
        yield [y for y in group if y not in ends and not any(precedes(end, y) for end in ends)]
    else:
        yield group


def _far(one, other, group, precedes):
    return sum(precedes(one, z) and precedes(z, other) for z in group)


# --- random rules and traces -----------------------------------------------------------------------------------------


def random_rule(rng, *, is_sequential):
    """Return a rule; one for sequential traces has no counts and can be written as a formula."""
    x, a, b = rng.sample("abcd", 3)
    key = rng.choice(("require", "forbid", "only") if is_sequential else ("require", "forbid", "only", "count"))
    rule = {key: x}
    if key == "count":
        bounds = rng.choice(
            [{"at_least": 1}, {"at_least": 2}, {"at_most": 0}, {"at_most": 1}, {"at_least": 1, "at_most": 2}]
        )
        rule |= bounds
    scopes = [{}, {"before": a}, {"after": a}, {"between": [a, b]}, {"until": b}, {"after": a, "until": b}]
    scopes += [] if is_sequential else [{"per": "turn"}, {"per": {"calls": rng.randint(3, 4)}}, {"between": [x, a]}]
    scopes += [{"before": x}, {"after": x}] if not is_sequential else []
    scope = rng.choice(scopes)
    rule |= scope
    if list(scope) in (["before"], ["after"]):
        chosen = rng.choice(
            [{}, {"within": rng.randint(1, 3)}, {"fresh": True}]
            + ([] if is_sequential else [{"within": 2, "fresh": True}])
        )
        rule |= chosen if x not in scope.values() or "fresh" not in chosen else {}
    if {"before", "after", "between"} & set(scope) and rng.random() < 0.5:
        rule["when_absent"] = rng.choice(["fail", "pass", "skip"])
    if not is_sequential and rng.random() < 0.3:
        rule["agent"] = rng.choice(["main", "sub", "each"])
    return rule


def random_calls(rng, most=8):
    """Return calls in turns, some of sub-agents, some with times."""
    calls, turn = [], 1
    jumps = rng.choice([(0, 1, 1), (0, 0, 0, 1), None])
    for _ in range(rng.randint(0, most)):
        turn = rng.randint(1, 3) if jumps is None else turn + rng.choice(jumps)
        calls.append({"tool_name": rng.choice("abcd"), "turn": turn})
    if rng.random() < 0.5:
        for call in calls:
            call |= rng.choice([{}, {"parent_tool_call_id": "p"}, {"parent_tool_call_id": "q"}])
    if rng.random() < 0.5:
        for call in calls:
            if rng.random() < 0.9:
                call |= {"start_ms": rng.randint(0, 6), "duration_ms": rng.choice([0, 1, 2, 3])}
    return calls
