"""The command line from a process that has imported it already: each call is a fork, and no test waits for imports.

Run as a program it serves calls on the socket it is given; `call` is the test's side. What a call sees is what a start
from a shell would give it: its own arguments, folder, environment, standard streams, and a normal end.
"""

import atexit
import contextlib
import gc
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

_HEADER = 1 << 20
_server = None
_lock = threading.Lock()


def call(arguments, *, env, cwd, input_text=None, timeout=100):
    """Return what `python -m waza ARGUMENTS` gives back."""
    with (
        tempfile.TemporaryFile() if input_text is not None else open(os.devnull, "r+b") as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write((input_text or "").encode())
        given.seek(0)
        with socket.socket(socket.AF_UNIX) as talk:
            talk.settimeout(timeout)
            talk.connect(_address())
            order = json.dumps({"arguments": arguments, "env": env, "cwd": str(cwd)}).encode()
            streams = [given.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(talk, [len(order).to_bytes(8, "big")], streams)
            talk.sendall(order)
            pid = int.from_bytes(talk.recv(8), "big", signed=True)
            try:
                code = int.from_bytes(talk.recv(8), "big", signed=True)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, timeout) from None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode().replace("\r\n", "\n"))
        return subprocess.CompletedProcess(["waza", *arguments], code, *texts)


def path():
    """Return a PATH on which `waza` is the warm one, for commands of a shell."""
    program = Path(_address()).with_name("waza")
    if not program.exists():
        program.write_text(_PROGRAM.format(python=sys.executable, address=_address()))
        program.chmod(0o755)
    return os.pathsep.join([str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]])


_PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as talk:
    talk.connect("{address}")
    order = json.dumps(dict(arguments=sys.argv[1:], env=dict(os.environ), cwd=os.getcwd())).encode()
    socket.send_fds(talk, [len(order).to_bytes(8, "big")], [0, 1, 2])
    talk.sendall(order)
    talk.recv(8)
    code = int.from_bytes(talk.recv(8), "big", signed=True)
sys.exit(code if code >= 0 else 128 - code)
"""


def _address():
    """Return where the server of this process listens; it is started when first needed, and ends with us."""
    global _server
    with _lock:
        if _server is None:
            folder = tempfile.mkdtemp(prefix="warm-")
            address = os.path.join(folder, "s")
            process = subprocess.Popen(
                [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert process.stdout.readline() == b"ready\n"
            atexit.register(_end, process, folder)
            _server = address
    return _server


def _end(process, folder):
    process.stdin.close()
    process.wait(10)
    shutil.rmtree(folder)


def _serve(address):
    """Serve calls until standard input ends; returns in the process of a call, as the call."""
    sys.path = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
    _import_all()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(16)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            os._exit(0)
        talk, _ = listener.accept()
        if os.fork():
            talk.close()
            continue
        listener.close()
        return _attend(talk)


def _attend(talk):
    """Start the call as a process of its own and wait for it; returns in that process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(talk, 8, 3)
    order = b""
    while len(order) < int.from_bytes(size, "big"):
        order += talk.recv(_HEADER)
    pid = os.fork()
    if pid:
        talk.sendall(pid.to_bytes(8, "big", signed=True))
        _, status = os.waitpid(pid, 0)
        talk.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))
        os._exit(0)
    talk.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return json.loads(order)


def _import_all():
    """Import what commands import when they are called."""
    import waza

    for package in ("cli", "graders", "engines", "reports", "runner", "spec", "results", "judges", "traces"):
        for module in pkgutil.iter_modules([os.path.join(os.path.dirname(waza.__file__), package)], f"waza.{package}."):
            with contextlib.suppress(Exception):  # whoever needs it hears of it
                __import__(module.name)
    from waza.suites.reference import file_schema

    file_schema("eval")  # builds every option's shape
    gc.collect()
    gc.freeze()
    threads = [thread.name for thread in threading.enumerate()]
    assert len(threads) == 1, f"a fork of several threads may hang: {threads}"


def _as_called(order):
    """Be the process that was asked for."""
    from waza.cli import main

    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path.insert(0, order["cwd"])
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115  what they are now
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = [os.path.join(os.path.dirname(sys.modules["waza"].__file__), "__main__.py"), *order["arguments"]]
    try:
        main()
    except SystemExit as end:
        code = end.code
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking all modules apart costs more than most calls


if __name__ == "__main__":
    _as_called(_serve(sys.argv[1]))
