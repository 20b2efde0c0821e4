"""Command lines: which only read, which change something, and of which nobody knows."""

import shlex
import shutil
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waza.untrusted.command_lines import MAX_LINE_CHARS, MUTATING, READ_ONLY, classify, worst

LINES = {
    "read_only": [
        *(
            "",
            "  ",
            "ls -la",
            "grep -rn x src | wc -l",
            "cat a 2>/dev/null",
            "ls & ls",
            "(ls; cat x)",
            "ls;",
            "cat < f",
        ),
        *("echo 'a > b'", 'echo "a > b"', r"echo a\>b", r"echo a\;rm", "echo $'it\\'s > x'", "ls # rm x", "ls \\\n-la"),
        *("A=1", "A=1 ls", "env", "env A=1 cat x", "time ls", "/bin/ls", "nice -n 10 ls", "sudo -u root cat x"),
        *("cat a 2>&1", "ls >/dev/null 2>&1", "ls &>/dev/null", "cat <&3", "ls >&2", "ls 2>/dev/stderr", "ls >&-"),
        *("sed -n '1,3p' f", "sed -e s/a/i/ f", "sed -ne p f", "sort -k 2 -t o f", "date -Iseconds", "command -v rm"),
        *("find . -name '*.py'", r"find . -exec grep x {} \;", "find . -exec grep -l x {} +", "test -f x && echo y"),
        *("curl https://x", "curl -s -o /dev/null -w '%{http_code}' u", "curl -X GET u", "curl -I u", "curl -Gd a=b u"),
        *("git status", "git -C x log --oneline", "git --no-pager diff", "[ 1 -gt 2 ] || ls", "echo $((1>2))"),
        *("bash -c 'ls | wc'", 'bash -lc "cat x"', "xargs grep x", "ls | xargs -n1 cat", "ls | xargs -0 -I {} cat {}"),
        *(
            "bash -euo pipefail -c 'ls | wc'",
            "echo $(ls)",
            "echo `ls`",
            'echo "`ls`"',
            "echo '$(rm x)'",
            r"echo \$\(rm x\)",
        ),
    ],
    "mutating": [
        *(
            "ls && rm -rf build",
            "ls;rm x",
            "ls\nrm x",
            "(rm x)",
            "ls | tee f",
            "ls & rm x",
            "nohup rm x &",
            "ls |& tee f",
        ),
        *("echo hi > n", "echo hi >> n", "echo hi>n", "ls &>f", "ls >&f", "ls 2>err", "ls >| f", "cat <> f", "> f"),
        *("echo $(rm x)", 'echo "$(rm x)"', "echo `rm x`", "echo $(ls; rm y)", "rm $(ls $(pwd))", 'echo "a $(ls > f)"'),
        *("sudo rm x", "sudo -u root rm x", "env A=1 rm x", "A=1 rm x", "/bin/rm x", "'rm' x", r"r\m x", 'r""m x'),
        *("sed -i s/a/b/ f", "sed -i.bak s f", "sed -ni p f", "sed --in-place p f", "sed --in-pl p f", "date -s 12:00"),
        *("sort -o f f", "sort -uo f f", "sort --output=f f", "find . -delete", r"find . -exec rm {} \;", "tree -o f"),
        *("find . -exec rm {} ';'", "find . -fprint f", "find . -exec xargs rm {} +", "git diff --output=f"),
        *("curl -d a=b u", "curl --data-raw x u", "curl -X POST u", "curl -XDELETE u", "curl --request PUT u"),
        *("curl -o f u", "curl -O u", "curl -sSLo f u", "curl --output f u", "curl --json {} u", "curl -c jar u"),
        *("git push", "git -C x commit -m y", "git -c a=b add .", "git --git-dir=x fetch", "git stash list"),
        *(
            "bash -c 'rm x'",
            "bash -euo pipefail -c 'rm x'",
            "bash -lc 'ls && rm x'",
            "sh -c \"bash -c 'rm x'\"",
            "xargs rm",
            "ls | xargs -I{} rm {}",
        ),
        *("pip install x", "apt-get -y install x", "npm ci", "if [[ a > b ]]; then ls; fi; rm x", "[[ a ]] > f"),
        *("cat <<EOF > f\nx\nEOF", "rm x; cat <<E\nE", "cat <<E\nE\nrm x", "cat <<-E\n\tE\nrm x"),
    ],
    "unknown": [
        *(
            "make deploy",
            "ls > >(tee f)",
            "bash -o x.sh",
            "python x.py",
            "./deploy.sh",
            "$CMD x",
            '"$(which rm)" x',
            "npm test",
            "pip list",
            "eval ls",
        ),
        *("cat <<EOF\nrm x\nEOF", "cat <<E", "cat <<< x", "diff <(ls a) <(ls b)", "ls >"),
        *("echo $(ls $(pwd))", "echo `ls \\`pwd\\``", "echo ${x:-$(rm y)}", "echo $(( $(rm x) ))", "echo $(ls `pwd`)"),
        *("echo 'abc", 'echo "abc', "echo $(ls", "echo `ls", "echo ${x", "echo $'abc"),
        *(
            "git",
            "git branch x",
            "git $sub",
            "bash x.sh",
            "bash",
            "bash -c",
            "env -S 'rm x'",
            "sudo -s",
            "sudo --shell",
        ),
        *("[[ a > b ]]", "(( a > b ))", "if [[ a > b ]]; then ls; fi", "while (( a > b )); do ls; done"),
        *("[[ a == b && c > d ]]", "for f in *; do rm $f; done", "xargs -Q rm", 'bash -c "cat $(ls)"', "curl -K f u"),
        *("curl -X $METHOD u", "ls >&$fd", "find . -exec", "xargs " * 100 + "rm", "x" * (MAX_LINE_CHARS + 1)),
    ],
}


@pytest.mark.parametrize("expected", LINES)
def test_each_line_has_its_class(expected):
    found = {line: classify(line) for line in LINES[expected]}
    assert {line: kind for line, kind in found.items() if kind != expected} == {}


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
PROGRAMS = st.sampled_from(["cat", "ls", "grep", "rm", "mv", "touch", "make", "python"])
CLASSES = {**dict.fromkeys(READ_ONLY, "read_only"), **dict.fromkeys(MUTATING, "mutating")}
COMMANDS = st.tuples(PROGRAMS, st.lists(WORDS, max_size=3))
SYNTAX = st.lists(st.sampled_from([*"$()`'\"<>|&;#\\{}[] \n=-", "<<", "$((", "rm", "E", "bash -c ", "find -exec "]))


def line_of(command):
    return shlex.join([command[0], *command[1]])


def class_of(command):
    return CLASSES.get(command[0], "unknown")


@settings(max_examples=300)
@given(SYNTAX.map("".join) | st.text(max_size=60))
def test_any_text_has_a_class(text):
    assert classify(text) in ("read_only", "unknown", "mutating")


@given(st.lists(COMMANDS, min_size=1, max_size=4), st.sampled_from([" | ", "|", ";", " && ", "||", "\n", " & "]))
def test_a_line_is_as_bad_as_its_worst_part_whatever_its_words_say(commands, separator):
    line = separator.join(map(line_of, commands))
    assert classify(line) == worst([class_of(command) for command in commands])


@given(
    COMMANDS,
    st.sampled_from(["sudo {}", "env A=1 {}", "B=2 nice -n 5 {}", "time nohup {}", "xargs {}", "({})", "/bin/{}"]),
)
def test_what_runs_a_command_has_its_class(command, around):
    assert classify(around.format(line_of(command))) == class_of(command)


@given(COMMANDS, st.integers(1, 3))
def test_a_script_in_shells_has_its_class_and_as_an_argument_it_is_text(command, depth):
    line = line_of(command)
    assert classify(f"echo {shlex.quote(line)}") == "read_only"
    for _ in range(depth):
        line = f"bash -c {shlex.quote(line)}"
    assert classify(line) == class_of(command)
    assert classify(f"echo $({line_of(command)})") == class_of(command)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash splits the words")
@settings(max_examples=20)
@given(st.lists(SYNTAX.map("".join), min_size=1, max_size=3))
def test_what_bash_takes_for_plain_words_is_no_effect(words):
    """Words that are quoted for bash come out of it as they were, and so they change nothing here either."""
    quoted = " ".join(map(shlex.quote, words))
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {quoted}"], capture_output=True, check=True, timeout=20)
    assert done.stdout.decode().split("\0")[:-1] == words
    assert classify(f"printf '%s' {quoted}") == "read_only"


def test_long_lines_take_little_time():
    for part in ("env ", "$(", "`ls` ", "<<E ", "'a' ", "((", "xargs ", "a;", "<(", '"$(ls)" ', "find -exec "):
        started = time.perf_counter()
        classify((part * 20_000)[:20_000])
        assert time.perf_counter() - started < 5, part
