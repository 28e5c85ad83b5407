"""The commands of `mimex`, one a file; each has `run(arguments) -> exit code`."""
