"""Things an escape would touch: a file, an environment variable, a new process, a listening socket."""

import os
import socket
import time
from pathlib import Path

SECRET = "canary-5f2c"
NAP = "61.5"


class Canaries:
    """Canaries in `folder`, and one in the environment."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "canary.txt"
        self.file.write_text(SECRET)
        self.written = folder / "written.txt"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.children = self._children()

    def reached(self) -> list[str]:
        """Return what was touched since the start."""
        found = ["file"] if self.written.exists() else []
        if new := self._children() - self.children:
            found.append(f"processes {sorted(new)}")
        try:
            self.listener.accept()[0].close()
            found.append("socket")
        except BlockingIOError:
            pass
        return found

    def payloads(self) -> list[str]:
        """Return Python expressions that touch each canary if they can; those that read return True."""
        return [
            f"{SECRET!r} in open({str(self.file)!r}).read()",
            f"open({str(self.written)!r}, 'w').write('x') == 1",
            f"__import__('os').environ['WAZA_CANARY'] == {SECRET!r}",
            f"__import__('socket').create_connection(('127.0.0.1', {self.port})).close() is None",
            f"__import__('subprocess').Popen(['sleep', {NAP!r}]).pid > 0",
        ]

    @staticmethod
    def _children() -> set[int]:
        children = set()
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                children.add(int(stat.parent.name))
        return children


def gone(pid: int, within_s: float = 10) -> bool:
    """Return whether a process has ended (a zombie has)."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False
