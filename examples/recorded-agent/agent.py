"""An agent whose tools and model calls write themselves down.   python agent.py  ·  waza run examples/recorded-agent"""

import waza
from waza import recording

STOCK = {"tea": 12, "milk": 0}


@recording.tool
def look_up(item: str) -> int:
    return STOCK[item]


def ask_model(question: str) -> str:
    with recording.model_call("a-model") as call:
        call.input_tokens, call.output_tokens = len(question.split()), 1
        return next((item for item in STOCK if item in question), "tea")


@recording.agent
def answer(prompt: str) -> str:
    item = ask_model(prompt)
    count = look_up(item)
    return f"There are {count} packs of {item}." if count else f"We are out of {item}."


if __name__ == "__main__":
    trace = answer("How much milk is left?")
    print(waza.grade(trace, {"tools_called": ["look_up"], "output_contains": ["out of milk"], "max_llm_calls": 1}))
