"""The recordings, and what each of them must read as: one script told to many agents."""

from pathlib import Path

from waza.model import Trace
from waza.traces.base import readers
from waza.traces.fields import decode
from waza.traces.reading import read_found

DATA = Path(__file__).parent.parent / "data"
FOLDER = DATA / "recordings"
DOCUMENTED = DATA / "traces"
"""Small files written from the documentation of a format, where no recording is at hand."""
FILES = sorted(path.name for path in FOLDER.iterdir())
IN, OUT = 120, 17
"""What every model answer claimed to have used."""

SHELL = {
    "claude-latest": "Bash",
    "claude-agent-sdk": "Bash",
    "codex": "command_execution",
    "gemini": "run_shell_command",
    "qwen": "run_shell_command",
    "openhands-sdk": "terminal",
}
"""What each agent calls its shell; `bash` where it is not here."""
ENGINES = {"claude-latest": "claude-code", "claude-agent-sdk": "claude-code", "copilot-sdk": "copilot"} | {
    "openhands-sdk": "openhands",
    "openai-agents-OpenAIChatCompletionsModel": "openai-agents",
    "openai-agents-OpenAIResponsesModel": "openai-agents",
    "mini-swe-agent": "mini-swe-agent",
}
MODEL_CALLS = {
    "hello": 2,
    "fail": 3,
    "multi": 4,
    "parallel": 2,
    "badtool": 2,
    "skill": 3,
    "edit": 3,
    "patch": 3,
    "mcp": 3,
}
MODEL_CALLS |= {"subagent": 4, "talk": 1, "resume-2": 1, "apierror": 0}
FINAL_TEXTS = {
    "hello": "Created hello.txt with the text hello.",
    "fail": "The first command failed (exit 3); I recovered and wrote recovered.txt.",
    "multi": "Fixed add() in calc.py; 2+3 now gives 5.",
    "parallel": "Wrote one.txt and two.txt.",
    "badtool": "That tool does not exist.",
    "skill": "Used the csv-report skill and wrote report.txt.",
    "edit": "Wrote notes.md.",
    "patch": "Patched.",
    "mcp": "2+3=5.",
    "subagent": "The subagent counted the files.",
    "talk": "Hello, I am a scripted model. 2+2=4.",
    "resume-2": "Hello, I am a scripted model. 2+2=4.",
    "apierror": "",
}
USAGE_EXCEPTIONS = {"codex-resume-2.jsonl": 3, "qwen-talk.jsonl": 2}
"""Files that count other model calls than those of the run: a whole thread, a side call."""
NO_TOKENS = ("copilot-badtool", "copilot-edit", "copilot-fail", "copilot-hello", "copilot-mcp", "copilot-multi.jsonl")
NO_TOKENS += ("copilot-skill.jsonl", "copilot-talk", "openai-agents", "openhands")


def agent_and_script(file: str) -> tuple[str, str]:
    """The two parts of a recording's name."""
    if file.startswith("mini-swe-agent"):
        return "mini-swe-agent", "mini"
    stem = file.split(".")[0]
    for script in MODEL_CALLS:
        if stem.endswith(f"-{script}"):
            return stem.removesuffix(f"-{script}"), script
    raise AssertionError(f"which script is {file} of?")


def of_script(*scripts: str) -> list[str]:
    """The recordings of these scripts."""
    return [file for file in FILES if agent_and_script(file)[1] in scripts]


def files_like(*patterns: str) -> list[str]:
    """Return the files of the test data that match, which must be some for each pattern."""
    found = [[path.relative_to(DATA).as_posix() for path in sorted(DATA.glob(pattern))] for pattern in patterns]
    assert all(found), patterns
    return [file for files in found for file in files]


def check_file_of(reader: str, file: str) -> None:
    """Check that `reader` alone recognises a file, and that a recording is read as one trace with nothing missing."""
    text = (DATA / file).read_bytes()
    try:
        items = decode(text)
    except ValueError:
        items = [decode(line) for line in text.splitlines()]
    first = items[0] if isinstance(items, list) else items
    assert [kind.__module__.rpartition(".")[2] for kind in readers() if kind.recognises(first)] == [reader]
    found = list(read_found(DATA / file))
    assert all(Trace.from_json(each.trace.to_json()) == each.trace for each in found)
    if file.startswith("recordings/"):
        assert [each.notes for each in found] == [[]]
