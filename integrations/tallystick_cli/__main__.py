"""`python -m tallystick_cli`: the `tally` command by the name of its module."""

from tallystick_cli import main

main()
