"""Is the bonus right, and is it used? Checks of a set-up by a probe whose novelty is known."""

from mimex.doctor.check import Check, all_well
from mimex.doctor.diagnose import diagnose
from mimex.doctor.run import run_doctor

__all__ = ["Check", "all_well", "diagnose", "run_doctor"]
