"""``python -m kvstored.cli.manual``: prints the page of the manual."""

import sys

from kvstored import package_version
from kvstored.cli.manual.describe import described
from kvstored.cli.manual.page import manual_page

if __name__ == "__main__":
    sys.stdout.write(manual_page(described(), version=package_version()))
