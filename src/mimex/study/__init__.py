"""Studies: experiments as data, from plan to report."""
