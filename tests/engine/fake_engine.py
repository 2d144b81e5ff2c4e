"""The engine's own main with fake workers: a program for tests, started as a process."""

import sys

from llmdeploy.engine.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], worker_module="fake_worker"))
