"""An agent that knows capitals."""

import waza

CAPITALS = {"France": "Paris", "Japan": "Tokyo"}


def answer(prompt: str) -> waza.Trace:
    country = prompt.rstrip("?").split()[-1]
    capital = CAPITALS.get(country, "unknown to me")
    call = waza.ToolEvent(tool_name="lookup", args={"country": country}, result=capital)
    return waza.Trace(input=prompt, output=f"It is {capital}.", tool_events=[call])
