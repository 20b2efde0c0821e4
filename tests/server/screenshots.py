"""Make the pictures of the guide: run the examples, open the dashboard on them, photograph its pages.

    .venv/bin/python tests/server/screenshots.py [--only NAME] [--to docs/images]

The examples are copied and run as they stand. Of `graders`, whose tasks fail on purpose, some failing answers are
mended run by run, so that there is a history to draw.
"""

import argparse
import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "reports")]

from chromium import browser  # noqa: E402
from serving import served  # noqa: E402

EXAMPLES = ("quickstart", "judged", "python-agent", "command-agent", "recorded-agent")
HISTORY = 9


def waza(*arguments, cwd, **more):
    command = [sys.executable, "-m", "waza", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False, **more)


def make_runs(folder):
    """Run every example, and one whose tasks fail, with a few fixed each time."""
    for name in (*EXAMPLES, "graders", "catalogue"):
        shutil.copytree(ROOT / "examples" / name, folder / name, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    for name in EXAMPLES:
        waza("run", name, "--allow-local-code", cwd=folder)
    waza("trigger", "catalogue", "--catalogue", "catalogue/skills", cwd=folder)
    suite = folder / "graders" / "eval.yaml"
    whole = yaml.safe_load(suite.read_text())
    for number in range(HISTORY):
        suite.write_text(yaml.safe_dump(repaired(whole, number), sort_keys=False))
        waza("run", "graders", cwd=folder)
    waza("run", "quickstart", "--trials", "3", cwd=folder)


def repaired(suite, count):
    """The suite with the first failing answers replaced by those that pass."""
    answers = {task["id"]: task.get("mock") for task in suite["tasks"]}
    wrong = [task["id"] for task in suite["tasks"] if task["id"].endswith("-fails")][:count]
    tasks = [
        task | {"mock": answers[task["id"].replace("-fails", "-passes")]} if task["id"] in wrong else task
        for task in suite["tasks"]
    ]
    return suite | {"tasks": tasks}


def newest(folder, suite, place=-1):
    return sorted(path.name for path in (folder / suite / "runs").iterdir() if path.is_dir())[place]


def pictures(folder):
    """The name of each picture, its address and top heading, and how it is taken: width, height, light or dark."""
    graders, first = newest(folder, "graders"), newest(folder, "graders", 0)
    yield "runs", "/", (1280, 860, "light")
    yield "run", f"/runs/{graders}", (1280, 1240, "light")
    yield "run-dark", f"/runs/{graders}", (1280, 1240, "dark")
    yield "trends", "/trends?suite=graders", (1280, 960, "light")
    yield "triggers", f"/runs/{newest(folder, 'catalogue')}#Skill used, by wording", (1280, 1000, "light")
    yield "phone", f"/runs/{graders}", (390, 844, "dark")
    yield "trial", f"/runs/{first}/task?id=tool_calls-fails&trial=1", (1280, 1400, "light")
    yield "compare", f"/compare?run={first}&run={graders}", (1280, 900, "light")


def take(tab, site, path, width, height, scheme):
    """One picture, once the page has come to rest."""
    is_phone = width < 500
    size = {"width": width, "height": height, "deviceScaleFactor": 2 if is_phone else 1, "mobile": is_phone}
    tab.call("Emulation.setDeviceMetricsOverride", **size)
    tab.call("Emulation.setScrollbarsHidden", hidden=True)
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    tab.events.clear()
    path, _, heading = path.partition("#")
    tab.call("Page.navigate", url=site.url(path))
    until = time.monotonic() + 30
    while not tab.named("Page.loadEventFired"):
        assert time.monotonic() < until, f"{path} does not load"
        tab._next(0.5)
    if heading:
        found = f"[...document.querySelectorAll('h2, h3')].find((one) => one.textContent === '{heading}')"
        tab.value(f"scrollTo(0, {found}.getBoundingClientRect().top - 58)")
    time.sleep(0.5)
    return base64.b64decode(tab.call("Page.captureScreenshot", format="png")["data"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="one picture")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    os.environ["NO_COLOR"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_runs(folder)
        with served(folder) as site, browser() as tab:
            tab.call("Page.navigate", url=site.made.link())
            time.sleep(2)
            for title, path, how in pictures(folder):
                if options.only in (None, title) and site.get(path.partition("#")[0])[0] == 200:
                    (options.to / f"{title}.png").write_bytes(take(tab, site, path, *how))
                    print(options.to / f"{title}.png")


if __name__ == "__main__":
    main()
