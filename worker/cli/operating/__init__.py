"""The operators' commands on an index, one file each."""

from worker.cli.operating.check import check
from worker.cli.operating.delete import delete
from worker.cli.operating.retire import retire
from worker.cli.operating.stats import stats
from worker.cli.operating.transfer import export, import_

COMMANDS = (check, stats, delete, retire, export, import_)

__all__ = ["COMMANDS"]
