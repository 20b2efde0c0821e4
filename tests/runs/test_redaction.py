"""A secret leaves no trace in any form, however the text that holds it is cut; and other text is left alone."""

import base64
import hashlib
import json
import random
import re
import time
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from campaign import count
from results_made import a_grade, a_result, a_run
from waza.model import Check, Trace
from waza.runs.journal import Note
from waza.runs.redaction import Redactor, forms_of, secrets_in
from waza.runs.store import RunFolder
from waza.untrusted.json import encode

CANARY = 'sk-Zq9+/x"7\\ü=Kd?wB3'
ENCODINGS = {
    "raw": lambda text: text,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "url": lambda text: quote(text, safe=""),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "json": lambda text: json.dumps(text)[1:-1],
    "upper": str.upper,
    "lower": str.lower,
    "mixed": lambda text: "".join(map(lambda one, odd: one.upper() if odd else one, text, range(99))),
    "upper base64": lambda text: base64.b64encode(text.upper().encode()).decode(),
    "upper hex": lambda text: text.upper().encode().hex(),
    "upper url": lambda text: quote(text.upper(), safe=""),
    "json upper": lambda text: json.dumps(text)[1:-1].upper(),
    "utf-16": lambda text: text.encode("utf-16-le").decode("utf-8", "replace"),
    "utf-16 big": lambda text: text.encode("utf-16-be").decode("latin-1"),
    "utf-16 json": lambda text: json.dumps(text.encode("utf-16-le").decode("latin-1"))[1:-1],
    "utf-16 base64": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "utf-16 big base64": lambda text: base64.b64encode(b"x" + text.encode("utf-16-be")).decode(),
    "utf-16 base64url": lambda text: base64.urlsafe_b64encode(text.upper().encode("utf-16")).decode(),
    "utf-16 hex": lambda text: text.encode("utf-16-be").hex(),
    "utf-16 url": lambda text: quote(text.encode("utf-16-le"), safe=""),
}
AROUND = ["", "x", "ab", "Bearer ", "https://host/?key=", "Zażółć "]


@pytest.fixture
def redactor():
    return Redactor({"MY_KEY": CANARY, "OTHER_TOKEN": "0123456789abcdef"})


def holds(text):
    """Whether six bytes of the secret, in any case, can be got out of the text again by any decoder."""
    secret = CANARY.encode().lower()
    windows = [secret[at : at + 6] for at in range(len(secret) - 5)]
    found = [decoded.lower() for decoded in decodings(text)]
    found += [decoded.replace(b"\0", b"") for decoded in found]
    return any(window in decoded for decoded in found for window in windows)


def decodings(text):
    """What the text says when it is taken as plain, escaped, or encoded at any alignment; tags are left out."""
    text = re.sub(r"\[REDACTED:[^]]*\]", " ", text)
    yield text.encode("utf-8", "surrogatepass")
    yield unquote_to_bytes(text)
    yield (
        re.sub(r"(?i)\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), text)
        .replace("\\", "")
        .encode("utf-8", "replace")
    )
    for run in re.findall(r"[0-9A-Fa-f]+", text):
        for start in (0, 1):
            yield bytes.fromhex(run[start : start + (len(run) - start) // 2 * 2])
    for run in re.findall(r"[\w+/-]+", text, re.ASCII):
        for start in range(4):
            part = run[start:].replace("-", "+").replace("_", "/")
            yield base64.b64decode(part[: len(part) // 4 * 4])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("before", AROUND)
@pytest.mark.parametrize("after", ["", "z", "tail "])
def test_a_secret_is_found_in_every_encoding_wherever_it_stands(redactor, encoding, before, after):
    for text in (
        ENCODINGS[encoding](before + CANARY + after),
        before + ENCODINGS[encoding](CANARY) + after,
    ):
        clean = redactor.text(text)
        assert "[REDACTED:MY_KEY#" in clean
        assert not holds(clean)
        assert holds(text)


def test_equal_values_have_equal_tags_and_others_do_not():
    one, two = (Redactor({"A_KEY": value}).text(value) for value in ("value-one-1", "value-two-2"))
    assert one == Redactor({"A_KEY": "value-one-1"}).text("value-one-1")
    assert one != two
    assert one.startswith("[REDACTED:A_KEY#")


def test_text_around_a_secret_is_kept(redactor):
    assert redactor.text(f"before {CANARY} after") == f"before {redactor.text(CANARY)} after"
    assert redactor.text("nothing here: sk-Zq9") == "nothing here: sk-Zq9"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_random_pieces_of_a_stream_hide_no_secret(redactor, encoding):
    randomly = random.Random(3)
    text = "start " + ENCODINGS[encoding]("ab" + CANARY + "cd") + " middle 0123456789abcdef" + CANARY + " end"
    whole = redactor.text(text)
    for _ in range(400):
        assert "".join(streamed(redactor, text, randomly)) == whole


def test_a_redactor_that_looks_at_each_piece_alone_does_leak(redactor):
    randomly = random.Random(3)
    text = f"start {CANARY} end"
    leaks = sum(holds("".join(map(redactor.text, pieces_of(text, randomly)))) for _ in range(400))
    assert leaks > 200


@pytest.mark.campaign
def test_twenty_thousand_chunkings_hide_every_secret(redactor):
    randomly, left = random.Random(5), 0
    for _ in range(20_000):
        encode = ENCODINGS[randomly.choice(list(ENCODINGS))]
        text = "".join(randomly.choice([encode(CANARY), "x", " some text ", CANARY[:5]]) for _ in range(6))
        left += holds("".join(streamed(redactor, text, randomly)))
    count("texts with a secret", 20_000)
    count("secrets left", left)
    assert not left


def pieces_of(text, randomly):
    cuts = sorted(randomly.randint(0, len(text)) for _ in range(randomly.randint(1, 12)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def streamed(redactor, text, randomly):
    stream = redactor.stream()
    for piece in pieces_of(text, randomly):
        yield stream.feed(piece)
    yield stream.close()


@given(
    secrets=st.lists(st.text("abc", min_size=8, max_size=12), min_size=1, max_size=3),
    text=st.text("abcd", max_size=80),
    size=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_overlapping_secrets_leave_no_part_in_any_chunking(secrets, text, size):
    redactor = Redactor({f"K{number}_KEY": secret for number, secret in enumerate(secrets)})
    text = text + secrets[0] + secrets[-1][4:]
    whole = redactor.text(text)
    assert not any(secret in whole for secret in secrets)
    stream = redactor.stream()
    parts = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(parts) + stream.close() == whole


def test_secrets_that_overlap_are_one_tag_and_neighbours_are_two():
    redactor = Redactor({"A_KEY": "abababab"})
    assert redactor.text("x abababababab y").count("REDACTED") == 1
    assert redactor.text("abababab" + "-" + "abababab").count("REDACTED") == 2


def test_a_secret_in_json_in_json_in_a_record_is_found(redactor):
    inner = json.dumps(json.dumps(CANARY))
    assert "REDACTED" in redactor.tree(Note(text=inner)).text


def test_a_stream_that_never_stops_repeating_a_secret_is_not_held_back():
    stream = Redactor({"A_KEY": "abababab"}).stream()
    for _ in range(200):
        stream.feed("ab" * 50)
        assert len(stream._held) < 100


def test_data_is_walked_with_its_keys_and_numbers():
    redactor = Redactor({"PIN_SECRET": "1234509876", "A_KEY": CANARY})
    tag, pin = redactor.text(CANARY), redactor.text("1234509876")
    tree = {"list": [CANARY, {"x": f"a {CANARY}"}], CANARY: 1, f"{CANARY}": 2, "pin": 1234509876, "n": 5, "none": None}
    assert redactor.tree(tree) == {"list": [tag, {"x": f"a {tag}"}], tag: 2, "pin": pin, "n": 5, "none": None}


def test_keys_and_values_that_are_not_text_are_looked_at_as_they_are_written():
    pin, tag = 1234509876, "[REDACTED:PIN_SECRET#"
    redactor = Redactor({"PIN_SECRET": str(pin), "DOT_SECRET": "12345.67891", "A_KEY": CANARY})
    odd = {pin: 1, CANARY.encode(): {CANARY.upper().encode()}, 12345.67891: 12345.67891, 7: 7, "more": {"x": {pin: 2}}}
    checks = [Check(False, "c", "f", pin, odd), Check(True, "c", "", 5, 12345.67891)]
    clean = redactor.tree(a_result(grades=[replace(a_grade(0.5, checks=checks), details={"n": [pin, {CANARY: pin}]})]))
    stored = encode(clean).decode()
    assert str(pin) not in stored and "12345.67891" not in stored and not holds(stored)
    first, second = clean.grades[0].checks
    assert first.expected.startswith(tag) and first.actual["7"] == 7 and second.expected == 5
    assert clean.grades[0].score == 0.5 and clean.trial == a_result().trial, "what is counted stays a number"


def test_a_key_file_is_no_burden():
    key = "\n".join(hashlib.sha512(bytes([line])).hexdigest()[:64] for line in range(60))
    started = time.process_time()
    redactor = Redactor({"A_KEY": key})
    text = "some text " * 100_000 + key.splitlines()[30].upper()
    assert redactor.text(text).endswith("]") and redactor.text(text).startswith("some text some")
    assert time.process_time() - started < 5


def test_two_keys_that_become_one_are_both_kept():
    redactor = Redactor({"A_KEY": "value-one-1"})
    hexed = b"value-one-1".hex()
    assert len(redactor.tree({"value-one-1": 1, hexed: 2})) == 2


def test_a_result_without_secrets_is_the_same_object(redactor):
    result = a_result()
    assert redactor.tree(result) is result


def test_a_result_is_redacted_everywhere_and_stays_a_result(redactor):
    trace = Trace(input=CANARY, output=CANARY, error=CANARY, outcome={CANARY: [CANARY]}, events=[{"type": CANARY}])
    grade = a_grade(checks=[Check(False, CANARY, CANARY, CANARY, {"a": CANARY})])
    result = a_result(trace=trace, grades=[grade], reason=CANARY)
    clean = redactor.tree(result)
    assert type(clean) is type(result)
    assert clean.grades[0].checks[0].expected == redactor.text(CANARY)
    assert clean.duration_ms == result.duration_ms
    assert not holds(repr(clean))


def test_the_files_of_a_trace_stay_where_they_are(redactor):
    files = object()
    result = a_result(trace=Trace(input="i", output=CANARY, files=files))
    assert redactor.tree(result).trace.files is files
    clean = a_result(trace=Trace(input="i", output="o", files=files))
    assert redactor.tree(clean) is clean


def test_twelve_places_times_every_encoding_leave_nothing_in_a_run_folder(tmp_path, redactor):
    folder = RunFolder.create(tmp_path, redactor.tree(a_run(spec={"config": {"env": {"K": CANARY}}, CANARY: [CANARY]})))
    with folder:
        for number, encode in enumerate(ENCODINGS.values()):
            text = encode(f"said {CANARY}!")
            trace = Trace(
                input=text,
                output=f"{text} {encode(CANARY)}",
                error=text,
                session_id=text,
                outcome={text: text},
                events=[{"type": "assistant_message", "content": text, "raw": json.dumps({"inner": text})}],
                available_skills=[text],
                baseline_output=text,
                extra={"later": text},
            )
            checks = [Check(False, text, text, text, [text])]
            grade = a_grade(0.0, name=text, checks=checks)
            folder.append(redactor.tree(a_result(f"{number} {text}", trace=trace, grades=[grade], reason=text)))
            folder.append(redactor.tree(Note(text=text)))
        folder.write("results.json", [redactor.text(f"{CANARY}").encode()])
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert stored.count(b"REDACTED:MY_KEY") > 12 * len(ENCODINGS)
    assert not holds(stored.decode())
    for form in forms_of(CANARY) | {json.dumps(form)[1:-1] for form in forms_of(CANARY)}:
        assert form.encode("utf-8", "surrogatepass") not in stored


def test_no_secrets_cost_nothing():
    redactor = Redactor({})
    tree = {"a": [1]}
    assert not redactor
    assert redactor.tree(tree) is tree
    assert redactor.text("any text") == "any text"
    assert redactor.stream().feed("any text") == "any text"


def test_lines_of_a_key_file_are_hidden_one_by_one():
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
    key = f"-----BEGIN PRIVATE KEY-----\n{line}\n{line[::-1]}\n-----END PRIVATE KEY-----\n"
    clean = Redactor({"A_KEY": key}).text(f"1: {line}\n2: {line[::-1]} -----BEGIN PRIVATE KEY-----")
    assert line not in clean
    assert line[::-1] not in clean
    assert clean.endswith("-----BEGIN PRIVATE KEY-----")


def test_text_that_is_no_unicode_is_redacted_too(redactor):
    assert redactor.text(f"\ud800 {CANARY} \udcff") == f"\ud800 {redactor.text(CANARY)} \udcff"


def test_secrets_are_known_by_their_names():
    environment = {
        "OPENAI_API_KEY": "sk-123456789",
        "GITHUB_TOKEN": "ghp_abcdefgh",
        "db_password": "correct horse",
        "CLIENT_SECRET": "s3cr3t-value",
        "AWS_CREDENTIALS": "AKIA12345678",
        "HTTP_AUTH": "dXNlcjpwYXNz",
        "PATH": "/usr/bin:/bin",
        "GIT_AUTHOR_NAME": "Somebody Else",
        "SSH_AUTH_SOCK": "/tmp/agent.1234",
        "KEY_FILE": "/etc/keys/a.pem",
        "AUTH_MODE": "interactive",
        "SHORT_KEY": "abc",
        "FLAT_KEY": "aaaaaaaaaaaa",
        "PROXY": "http://user:p%40ssword1@proxy:80",
        "DECLARED": "chosen-by-author",
    }
    found, warnings = secrets_in(environment, declared=["DECLARED", "MISSING"])
    named = {"OPENAI_API_KEY", "GITHUB_TOKEN", "db_password", "CLIENT_SECRET", "AWS_CREDENTIALS", "HTTP_AUTH"}
    assert set(found) == named | {"DECLARED", "PROXY.password"}
    assert found["PROXY.password"] == "p@ssword1"
    assert warnings == []


@pytest.mark.parametrize("value", ["short", "password", "aaaaaaaaaaaa"])
def test_a_declared_secret_that_cannot_be_hidden_is_told(value):
    found, warnings = secrets_in({"MINE": value}, declared=["MINE"])
    assert found == {}
    assert "MINE is too short or too common" in warnings[0]
