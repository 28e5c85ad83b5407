"""The report: runs as one page that needs neither server nor network."""

from mimex.study.report.write import Written, write_report

__all__ = ["Written", "write_report"]
