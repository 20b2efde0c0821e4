import os
import sys
import time

# re-forks itself forever: a new PID every ~0.2 ms; parent exits at once
open(sys.argv[1] + "/go", "w").close()
os.setsid()
while True:
    if os.fork():
        os._exit(0)
    if os.path.exists(sys.argv[1] + "/stop"):
        os._exit(0)
    try:
        fd = os.open(sys.argv[1] + "/comet", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, b"%f" % time.time())
        os.close(fd)
    except OSError:
        pass
