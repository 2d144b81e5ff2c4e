"""`python -m llmdeploy` is the command line."""

from llmdeploy.cli.app import main

main()
