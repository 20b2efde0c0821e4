"""Classify command lines of a shell by their text: read-only, mutating, or unknown. Nothing is ever run.

A line is split into simple commands the way a POSIX shell does; it is as bad as its worst part. The tables say what is
known of each program; everything else is unknown, and so is whatever cannot be read: here-documents, process
substitution, substitution inside substitution, quotes that do not close.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

CommandClass = Literal["read_only", "unknown", "mutating"]
_SEVERITY: tuple[CommandClass, ...] = ("read_only", "unknown", "mutating")
MAX_LINE_CHARS = 100_000
"""A longer line is unknown."""
_CACHED_CHARS = 500
"""Lines up to this length are read once: the trials of a run have many in common."""
_MAX_WRAPPERS = 20
_MAX_DEPTH = 8
"""Shells inside shells that are read; deeper ones are unknown."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


READ_ONLY = _names(
    "cat ls head tail grep egrep fgrep rg wc pwd echo printf cd test [ true false which type file stat du df ps date"
    " diff cmp uniq cut tr sleep basename dirname realpath readlink tree jq less more id whoami uname hostname printenv"
    " sha256sum md5sum sed sort find curl"
)
MUTATING = _names(
    "rm mv cp mkdir rmdir touch chmod chown chgrp ln dd truncate tee install unlink shred patch kill pkill killall wget"
    " rsync scp sftp mkfs mount umount reboot shutdown useradd userdel passwd crontab"
)
GIT_READ_ONLY = _names("status log diff show blame grep ls-files ls-tree rev-parse describe shortlog cat-file")
GIT_MUTATING = _names(
    "add commit push pull merge rebase reset checkout switch restore stash clean cherry-pick revert rm mv init clone"
    " apply am fetch"
)
PACKAGE_MANAGERS = _names("pip pip3 npm pnpm yarn apt apt-get brew cargo gem")
PACKAGE_CHANGES = _names("install uninstall i ci add remove update upgrade publish")
SHELLS = _names("bash sh zsh dash")
_DESCRIPTOR = re.compile(r"\d+-?|-")
_NO_FILES = ("/dev/null", "/dev/stdout", "/dev/stderr")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=", re.ASCII)


class _Syntax(NamedTuple):
    """Which options of a program take a value, so that the value is not taken for an option or a command."""

    short: str = ""
    long: tuple[str, ...] = ()
    flags: str | None = None
    """Options without a value; None where any other letter may be one."""


_WRAPPERS = {
    "sudo": _Syntax("ughpCTrtUDR", ("user", "group", "host", "prompt", "chdir"), "nEHbkSAP"),
    "env": _Syntax("uC", ("unset", "chdir"), "i0v"),
    "time": _Syntax("f", ("format",), "pv"),
    "nohup": _Syntax(flags=""),
    "nice": _Syntax("n", ("adjustment",), "0123456789"),
    "command": _Syntax(flags="p"),
    "exec": _Syntax("a", (), "cl"),
}
"""Programs that run the command after them, which is what counts."""
_XARGS = _Syntax(
    "IndPLEsa",
    ("max-args", "max-procs", "max-lines", "max-chars", "delimiter", "arg-file", "process-slot-var"),
    "0rtpxoe",
)
_HARMLESS = _names(
    "null no-run-if-empty verbose replace exit open-tty interactive ignore-environment preserve-env non-interactive"
    " portability no-pager paginate bare literal-pathspecs no-replace-objects"
)
"""Long options of these programs that do not matter here."""
_WRITING = {
    "sed": (_Syntax("efl"), "i", ("in-place",)),
    "sort": (_Syntax("ktST"), "o", ("output",)),
    "tree": (_Syntax("LPIH"), "o", ()),
    "date": (_Syntax("drI"), "s", ("set",)),
}
"""Programs that only read but for these options: a letter, or a long name, which may be shortened."""
_FIND_WRITES = ("-delete", "-fprint", "-fprint0", "-fprintf", "-fls")
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_GIT = _Syntax("Cc", ("git-dir", "work-tree", "namespace", "exec-path", "super-prefix", "config-env"), "pP")
_CURL = _Syntax("AbcCdDeEFhHKmoPQrtTuUwxXyYz")
_CURL_BODY = ("d", "F", "T", "json", "form", "form-string", "upload-file", "data", "url-query")
_CURL_FILES = ("o", "c", "D", "output", "cookie-jar", "dump-header", "trace", "trace-ascii", "stderr", "etag-save")
_CURL_WRITES = ("O", "J", "Q", "remote-name", "remote-name-all", "remote-header-name", "quote", "libcurl", "hsts")


def classify(line: str) -> CommandClass:
    """Return whether a command line only reads, changes something, or may do either."""
    return _classified(line) if len(line) <= _CACHED_CHARS else _classify(line, 0)


@lru_cache(maxsize=4096)
def _classified(line: str) -> CommandClass:
    return _classify(line, 0)


def worst(classes: Iterator[CommandClass] | Sequence[CommandClass]) -> CommandClass:
    """Return the worst of some classes; read-only where there is none."""
    return max(classes, key=_SEVERITY.index, default="read_only")


def _classify(line: str, depth: int) -> CommandClass:
    if len(line) > MAX_LINE_CHARS or depth > _MAX_DEPTH:
        return "unknown"
    scan = _Scan(line)
    try:
        scan.run()
    except _Unreadable:
        return "unknown"
    found = list(scan.found)
    found += [_substituted(inner, depth) for inner in scan.substitutions]
    found += [_command(words, depth) for words in scan.commands]
    return worst(found)


def _substituted(inner: str, depth: int) -> CommandClass:
    """Return the class of a substituted line; of a substitution inside it, nothing is known."""
    scan = _Scan(inner)
    try:
        scan.run()
    except _Unreadable:
        return "unknown"
    nested: list[CommandClass] = ["unknown"] if scan.substitutions else []
    return worst([*nested, *scan.found, *(_command(words, depth + 1) for words in scan.commands)])


class _Unreadable(Exception):
    """A line that is not a whole one: a quote or a bracket does not close."""


class Word(NamedTuple):
    """One word of a command, without its quotes."""

    text: str
    is_spliced: bool = False
    """Whether the output of another command becomes part of it."""


class _Scan:
    """One reading of a line: its simple commands, the lines in substitutions, and what is known at once."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0
        self.commands: list[list[Word]] = []
        self.substitutions: list[str] = []
        self.found: list[CommandClass] = []
        self._words: list[Word] = []
        self._word: list[str] | None = None
        self._is_spliced = self._is_quoted = False
        self._target: str | None = None
        """The operator of a redirection whose target is the next word."""
        self._endings: list[tuple[str, bool]] = []
        """Here-documents that begin on the next line: the word that ends each, and whether tabs before it count."""
        self._in_test = False
        """Inside `[[ … ]]`, where `<` and `>` compare."""

    def run(self) -> None:
        """Read the whole line."""
        while self.at < len(self.line):
            if plain := _PLAIN.match(self.line, self.at):
                self._add(plain[0])
                self.at = plain.end()
            else:
                _STEPS[self.line[self.at]](self)
        self._end_command()
        if self._endings:
            self.found.append("unknown")

    def _ahead(self, text: str) -> bool:
        return self.line.startswith(text, self.at)

    def _add(self, text: str) -> None:
        self._word = self._word or []
        self._word.append(text)

    def _end_word(self) -> None:
        if self._word is None:
            return
        word = Word("".join(self._word), self._is_spliced)
        operator, self._target = self._target, None
        is_quoted = self._is_quoted
        self._word, self._is_spliced, self._is_quoted = None, False, False
        if operator is None:
            if not is_quoted and word.text in ("[[", "]]"):
                self._in_test = word.text == "[[" and (self._in_test or self._begins_command())
            self._words.append(word)
        elif operator.startswith("<<") and operator != "<<<":
            self._endings.append((word.text, operator == "<<-"))
        elif operator not in ("<", "<&", "<<<"):
            self.found.append(_redirected(operator, word))

    def _begins_command(self) -> bool:
        return all(word.text in _KEYWORDS for word in self._words)

    def _end_command(self) -> None:
        self._end_word()
        if self._target is not None:
            self._target = None
            self.found.append("unknown")  # a redirection to nothing is an error of the shell
        if self._words:
            self.commands.append(self._words)
            self._words = []

    def _space(self) -> None:
        self._end_word()
        self.at += 1

    def _separator(self) -> None:
        if self._ahead("&>"):
            self._end_word()
            self._redirect("&>>" if self._ahead("&>>") else "&>")
            return
        if self._ahead("((") and self._word is None and self._begins_command():
            self.at = self._closed(self.at + 1, arithmetic=True)
            self.found.append("unknown")
            return
        self._end_command()
        self.at += 1

    def _line_end(self) -> None:
        self._end_command()
        self.at += 1
        for ending, has_tabs in self._endings:
            self._skip_document(ending, has_tabs)
        self._endings = []

    def _skip_document(self, ending: str, has_tabs: bool) -> None:
        self.found.append("unknown")
        while self.at < len(self.line):
            end = self.line.find("\n", self.at)
            text = self.line[self.at : end if end >= 0 else len(self.line)]
            self.at += len(text) + 1
            if (text.lstrip("\t") if has_tabs else text) == ending:
                return

    def _comment(self) -> None:
        if self._word is not None:
            self._add("#")
            self.at += 1
            return
        end = self.line.find("\n", self.at)
        self.at = len(self.line) if end < 0 else end

    def _escape(self) -> None:
        following = self.line[self.at + 1 : self.at + 2]
        if following != "\n":  # a line that goes on
            self._add(following or "\\")
            self._is_quoted = True
        self.at += 2

    def _single_quotes(self) -> None:
        end = self.line.find("'", self.at + 1)
        if end < 0:
            raise _Unreadable
        self._add(self.line[self.at + 1 : end])
        self._is_quoted = True
        self.at = end + 1

    def _ansi_quotes(self) -> None:
        self.at += 2
        self._add("")
        self._is_quoted = True
        while not self._ahead("'"):
            if self.at >= len(self.line):
                raise _Unreadable
            width = 2 if self._ahead("\\") else 1
            self._add(self.line[self.at : self.at + width])
            self.at += width
        self.at += 1

    def _double_quotes(self) -> None:
        self.at += 1
        self._add("")
        self._is_quoted = True
        while not self._ahead('"'):
            if self.at >= len(self.line):
                raise _Unreadable
            letter = self.line[self.at]
            if letter == "\\" and self.line[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                self._add(self.line[self.at + 1].replace("\n", ""))
                self.at += 2
            elif letter == "`":
                self._backquotes()
            elif letter == "$":
                self._dollar(in_quotes=True)
            else:
                plain = _QUOTED.match(self.line, self.at)
                self._add(plain[0] if plain else letter)
                self.at = plain.end() if plain else self.at + 1
        self.at += 1

    def _backquotes(self) -> None:
        end = self.at + 1
        while self.line[end : end + 1] != "`":
            if end >= len(self.line):
                raise _Unreadable
            end += 2 if self.line[end] == "\\" else 1
        inner = self.line[self.at + 1 : end]
        # Inside, backslashes before these stand for the characters themselves: \` begins a substitution of its own.
        self._substitute(re.sub(r"\\([`\\$])", r"\1", inner), end + 1)

    def _dollar(self, in_quotes: bool = False) -> None:
        if self._ahead("$'") and not in_quotes:
            self._ansi_quotes()
        elif self._ahead("$((") and (end := self._arithmetic_end()):
            inner = self.line[self.at : end]
            if "`" in inner or "$(" in inner[3:]:
                self.found.append("unknown")
            self._add(inner)
            self.at = end
        elif self._ahead("$("):
            end = self._closed(self.at + 1)
            self._substitute(self.line[self.at + 2 : end - 1], end)
        elif self._ahead("${"):
            self._parameter()
        else:
            self._add("$")
            self.at += 1

    def _parameter(self) -> None:
        """Pass over `${NAME…}`; what is substituted inside it is not known."""
        end = self.line.find("}", self.at)
        if end < 0:
            raise _Unreadable
        inner = self.line[self.at : end + 1]
        if "`" in inner or "$(" in inner:
            self.found.append("unknown")
        self._add(inner)
        self.at = end + 1

    def _substitute(self, inner: str, end: int) -> None:
        self.substitutions.append(inner)
        self._add(f"$({inner})")
        self._is_spliced = True
        self.at = end

    def _arithmetic_end(self) -> int | None:
        """Return where `$((…))` ends; None where it is a command in brackets after all."""
        try:
            inner = self._closed(self.at + 2)
        except _Unreadable:
            return None
        return inner + 1 if self.line[inner : inner + 1] == ")" else None

    def _closed(self, start: int, *, arithmetic: bool = False) -> int:
        """Return the place after the bracket that closes the one at `start`; quoted ones do not count."""
        at, depth = start, 0
        while at < len(self.line):
            letter = self.line[at]
            if letter == "\\":
                at += 1
            elif letter in "'\"`" and not arithmetic:
                at = self._quote_end(at)
            elif letter == "(":
                depth += 1
            elif letter == ")":
                depth -= 1
                if not depth:
                    return at + 1 + (arithmetic and self.line[at + 1 : at + 2] == ")")
            at += 1
        raise _Unreadable

    def _quote_end(self, at: int) -> int:
        """Return the place of the quote that closes the one at `at`."""
        quote, end = self.line[at], at + 1
        while end < len(self.line):
            if self.line[end] == quote:
                return end
            end += 2 if self.line[end] == "\\" and quote != "'" else 1
        raise _Unreadable

    def _angle(self) -> None:
        if self._in_test:
            self._add(self.line[self.at])
            self.at += 1
            return
        if self._word is not None and not self._is_quoted and "".join(self._word).isdecimal():
            self._word = None  # the number of a descriptor, not a word
        self._end_word()
        if self._ahead("<(") or self._ahead(">("):
            self.at = self._closed(self.at + 1)
            self.found.append("unknown")
            self._add("/dev/fd/63")
            return
        self._redirect(next(operator for operator in _OPERATORS if self._ahead(operator)))

    def _redirect(self, operator: str) -> None:
        if self._target is not None:
            self.found.append("unknown")
        if operator.startswith("<<"):
            self.found.append("unknown")
        self._target = operator
        self.at += len(operator)


_PLAIN = re.compile(r"[^ \t\r\n;&|()<>#\\'\"`$]+")
"""Characters that are only part of a word: all without a step."""
_QUOTED = re.compile(r"[^\\\"`$]+")
_KEYWORDS = ("if", "elif", "while", "until", "then", "else", "do", "for", "!", "{")
_OPERATORS = ("<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">|", ">&", ">")
_STEPS: dict[str, Callable[[_Scan], None]] = {
    **dict.fromkeys(" \t\r", _Scan._space),
    **dict.fromkeys(";&|()", _Scan._separator),
    **dict.fromkeys("<>", _Scan._angle),
    "\n": _Scan._line_end,
    "#": _Scan._comment,
    "\\": _Scan._escape,
    "'": _Scan._single_quotes,
    '"': _Scan._double_quotes,
    "`": _Scan._backquotes,
    "$": _Scan._dollar,
}


def _redirected(operator: str, target: Word) -> CommandClass:
    """Return the class of a redirection of output."""
    if operator == ">&" and "$" in target.text:
        return "unknown"
    if operator == ">&" and _DESCRIPTOR.fullmatch(target.text):
        return "read_only"
    return "read_only" if _is_no_file(target.text) else "mutating"


def _is_no_file(path: str) -> bool:
    return path in _NO_FILES or path.startswith("/dev/fd/")


def _command(words: Sequence[Word], depth: int) -> CommandClass:
    """Return the class of a simple command."""
    if depth > _MAX_DEPTH:
        return "unknown"
    words = _without_assignments(words)
    for _ in range(_MAX_WRAPPERS):
        if not words or (name := _program(words[0])) not in _WRAPPERS:
            break
        if name == "command" and [word.text for word in words[1:2]] in (["-v"], ["-V"]):
            return "read_only"
        inner = _after_options(words[1:], _WRAPPERS[name])
        if inner is None:
            return "unknown"
        words = _without_assignments(inner)
    else:
        return "unknown"
    if not words:
        return "read_only"
    name, rest = _program(words[0]), words[1:]
    if name in SHELLS:
        return _shell(rest, depth)
    if name == "xargs":
        inner = _after_options(rest, _XARGS)
        return "unknown" if inner is None else _command(inner, depth + 1) if inner else "read_only"
    if name in PACKAGE_MANAGERS:
        first = next((word.text for word in rest if not word.text.startswith("-")), "")
        return "mutating" if first in PACKAGE_CHANGES else "unknown"
    if special := _SPECIAL.get(name):
        return special(rest, depth)
    if name in _WRITING:
        return _with_writing_options(name, rest)
    return "read_only" if name in READ_ONLY else "mutating" if name in MUTATING else "unknown"


def _program(word: Word) -> str:
    """Return a program's name without the path before it."""
    return "" if word.is_spliced else word.text.rpartition("/")[2]


def _without_assignments(words: Sequence[Word]) -> Sequence[Word]:
    for place, word in enumerate(words):
        if not _ASSIGNMENT.match(word.text):
            return words[place:]
    return ()


def _options(words: Sequence[Word], syntax: _Syntax) -> Iterator[tuple[str, str]]:
    """Yield the options among words, each a letter or a long name, with its value if it takes one."""
    at = 0
    while at < len(words):
        text = words[at].text
        at += 1
        if text == "--":
            return
        if text.startswith("--"):
            name, has_value, value = text[2:].partition("=")
            if not has_value and name in syntax.long and at < len(words):
                value, at = words[at].text, at + 1
            yield name, value
        elif text.startswith("-") and text != "-":
            for place, letter in enumerate(text[1:], 2):
                if letter not in syntax.short:
                    yield letter, ""
                    continue
                value = text[place:]
                if not value and at < len(words):
                    value, at = words[at].text, at + 1
                yield letter, value
                break


def _after_options(words: Sequence[Word], syntax: _Syntax) -> Sequence[Word] | None:
    """Return the words after the options at the beginning; None where an option is not known."""
    at = 0
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "-":
        text = words[at].text
        at += 1
        if text == "--":
            break
        if text.startswith("--"):
            name, has_value, _ = text[2:].partition("=")
            if name not in syntax.long and name not in _HARMLESS:
                return None
            at += name in syntax.long and not has_value
            continue
        for place, letter in enumerate(text[1:], 2):
            if letter in syntax.short:
                at += place == len(text)
                break
            if syntax.flags is None or letter not in syntax.flags:
                return None
    return words[at:]


def _shell(words: Sequence[Word], depth: int) -> CommandClass:
    """Return the class of the script after `-c`; of a script in a file nothing is known."""
    for place, word in enumerate(words):
        if not word.text.startswith(("-", "+")):
            before = words[place - 1].text if place else ""
            if before[:1] in ("-", "+") and before[-1:] in ("o", "O") and not before.startswith("--"):
                continue  # the value of `-o`, as in `bash -euo pipefail -c SCRIPT`
            return "unknown"
        if word.text[0] == "-" and word.text[1:2] != "-" and "c" in word.text:
            script = next((each for each in words[place + 1 :] if not each.text.startswith(("-", "+"))), None)
            if script is None:
                return "unknown"
            spliced: CommandClass = "unknown" if script.is_spliced else "read_only"
            return worst([spliced, _classify(script.text, depth + 1)])
    return "unknown"


def _find(words: Sequence[Word], depth: int) -> CommandClass:
    found: list[CommandClass] = []
    inner: list[Word] | None = None
    for word in words:
        if inner is not None and word.text not in (";", "+"):
            inner.append(word)
        elif inner is not None:
            found.append(_command(inner, depth + 1) if inner else "unknown")
            inner = None
        elif word.text in _FIND_RUNS:
            inner = []
        elif word.text in _FIND_WRITES:
            found.append("mutating")
    if inner is not None:
        found.append(_command(inner, depth + 1) if inner else "unknown")
    return worst(found)


def _git(words: Sequence[Word], depth: int) -> CommandClass:
    inner = _after_options(words, _GIT)
    name = inner[0].text if inner else ""
    if name in GIT_MUTATING:
        return "mutating"
    if name not in GIT_READ_ONLY:
        return "unknown"
    assert inner
    return "mutating" if any(word.text.startswith("--output=") for word in inner[1:]) else "read_only"


def _curl(words: Sequence[Word], depth: int) -> CommandClass:
    found: list[CommandClass] = []
    given = list(_options(words, _CURL))
    long_values = {
        before.text.removeprefix("--"): after.text for before, after in pairwise(words) if before.text.startswith("--")
    }
    has_query = any(name in ("G", "get") for name, _ in given)
    for name, value in given:
        value = value or long_values.get(name, "")
        if name in _CURL_BODY or name.startswith("data-"):
            found.append("read_only" if has_query or name == "url-query" else "mutating")
        elif name in _CURL_FILES:
            found.append("read_only" if value == "-" or _is_no_file(value) else "mutating")
        elif name in _CURL_WRITES:
            found.append("mutating")
        elif name in ("X", "request"):
            is_read = value.upper() in ("GET", "HEAD")
            found.append("read_only" if is_read else "unknown" if "$" in value else "mutating")
        elif name in ("K", "config"):
            found.append("unknown")
    return worst(found)


def _with_writing_options(name: str, words: Sequence[Word]) -> CommandClass:
    syntax, letter, long = _WRITING[name]
    writes = any(
        option == letter or (len(option) > 1 and any(full.startswith(option) for full in long))
        for option, _ in _options(words, syntax)
    )
    return "mutating" if writes else "read_only"


_SPECIAL: dict[str, Callable[[Sequence[Word], int], CommandClass]] = {"find": _find, "git": _git, "curl": _curl}
