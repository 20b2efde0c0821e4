"""A secret that an agent meets reaches no file of the run folder and no screen, however it is written."""

import base64
import json
import os
import urllib.parse

import pytest

SECRET = 'sk-Canary/7+"quoted" & späce_0123456789'


def encodings(secret):
    raw = secret.encode()
    yield "plain", secret
    yield "base64", base64.b64encode(raw).decode()
    yield "base64url", base64.urlsafe_b64encode(b"x:" + raw).decode()
    yield "url", urllib.parse.quote(secret, safe="")
    yield "hex", raw.hex()
    yield "json", json.dumps(secret)[1:-1]
    yield "key", json.dumps({secret: 1})[1:-5]
    yield "upper", secret.upper()
    yield "upper base64", base64.b64encode(secret.upper().encode()).decode()
    yield "utf-16", secret.encode("utf-16-le").decode("latin-1")[:-1]
    yield "utf-16 json", json.dumps(secret.encode("utf-16-be").decode("latin-1"))[7:-1]
    yield "utf-16 base64", base64.b64encode(secret.encode("utf-16-le")).decode()[:-4]
    yield "utf-16 hex", secret.encode("utf-16-be").hex()


FORMS = dict(encodings(SECRET))
AGENT = """
    import os, base64, json, urllib.parse, pathlib, waza
    def forms(s):
        raw = s.encode()
        return [s, base64.b64encode(raw).decode(), base64.urlsafe_b64encode(b"x:" + raw).decode(),
                urllib.parse.quote(s, safe=""), raw.hex(), json.dumps(s)[1:-1], json.dumps({s: 1}), s.upper(),
                base64.b64encode(s.upper().encode()).decode(), s.encode("utf-16-le").decode("latin-1"),
                json.dumps(s.encode("utf-16-be").decode("latin-1"))[1:-1],
                base64.b64encode(s.encode("utf-16-le")).decode(), s.encode("utf-16-be").hex()]
    def answer(prompt, context):
        text = " | ".join(forms(os.environ["CANARY_API_KEY"]))
        folder = pathlib.Path(context["workspace"]) if isinstance(context, dict) else pathlib.Path(context.workspace)
        (folder / "notes.txt").write_text(text)
        (folder / "wide.txt").write_bytes(os.environ["CANARY_API_KEY"].encode("utf-16"))
        (folder / ("x" + os.environ["CANARY_API_KEY"].encode().hex())).write_text("name")
        call = waza.ToolEvent(tool_name="t", args={"a": text, text: 1}, result=[text], error=text)
        return waza.Trace(input=text, output=text, error=text, session_id=text, outcome={text: text},
                          events=[{"type": "m", "content": text}], tool_events=[call], available_skills=[text],
                          skill_invocations=[], extra={"vendor": {"k": text}})
    """


def hits(text):
    return [name for name, form in FORMS.items() if form in text]


@pytest.fixture
def leaky(suite):
    return suite(
        """
        config: {executor: python, agent: "leaky_agent:answer", environment: {}}
        hooks: {before_task: [{command: "sh -c 'echo $0 $CANARY_API_KEY; exit 3'"}]}
        graders:
          - {type: text, name: t, config: {contains: [nothing]}}
          - {type: code, name: c, config: {assertions: ["output == ''"]}}
          - {type: equals, name: e, config: {expected: ''}}
        tasks: [{id: a, prompt: x, inputs: {environment: {OTHER_TOKEN: 'sk-Canary/7+"quoted" & späce_0123456789'}}}]
        """.replace(", environment: {}", ""),
        leaky_agent__py=AGENT,
    )


def test_no_form_of_a_secret_reaches_the_run_folder_or_the_screen(leaky, waza):
    done = waza("run", "-v", "--interpret", env={"CANARY_API_KEY": SECRET})
    assert done.returncode == 1, done.stderr
    assert hits(done.stdout + done.stderr) == []
    assert "[REDACTED:CANARY_API_KEY#" in done.stdout
    files = [path for path in (leaky / "runs").rglob("*") if path.is_file()]
    assert any(path.name == "journal.jsonl" for path in files) and any("artifacts" in str(path) for path in files)
    for path in files:
        assert hits(path.read_bytes().decode("utf-8", "replace")) == [], path
        assert hits(str(path)) == []
        assert SECRET.encode("utf-16-le")[2:-2] not in path.read_bytes()
    for command in (("show", "latest", "--task", "a", "--trial", "1", "-v"), ("show", "--json"), ("list", "runs")):
        shown = waza(*command)
        assert hits(shown.stdout + shown.stderr) == [], command


def test_the_same_search_finds_a_value_that_is_not_secret(leaky, waza):
    """The canary would be seen: under a harmless name the same value is stored as it is."""
    text = (leaky / "leaky_agent.py").read_text().replace("CANARY_API_KEY", "CANARY_PLAIN")
    (leaky / "leaky_agent.py").write_text(text)
    eval_file = leaky / "eval.yaml"
    eval_file.write_text(eval_file.read_text().replace("OTHER_TOKEN", "OTHER_PLAIN"))
    waza("run", "-q", env={"CANARY_PLAIN": SECRET})
    journal = next((leaky / "runs").glob("*/journal.jsonl")).read_text()
    [result] = [json.loads(line[9:])["result"] for line in journal.split("\n") if '"kind":"result"' in line]
    assert hits(result["trace"]["output"]) == list(FORMS)


def test_environment_of_waza_does_not_reach_a_command_agent(suite, waza):
    suite(
        """
        config: {executor: command, command: [env]}
        graders: [{type: text, config: {not_contains: [CANARY]}}]
        tasks: [{id: a, prompt: x}]
        """
    )
    assert waza("run", env={"CANARY_API_KEY": SECRET, "LD_PRELOAD_CANARY": "x"}).returncode == 0
    assert "CANARY_API_KEY" not in os.environ
