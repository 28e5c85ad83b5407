"""The commands of `mimex`; each file has `run(arguments) -> exit code`."""
